/* SPDX-License-Identifier: BSD-3-Clause */
/* Bindings: look-up, expiry, and release without a request. */
#include "request_pvt.h"

struct kvr_rq_order *kvr_rq__about(const struct step *step, enum kvr_rq_order_kind kind,
				   const struct kvr_rq_pool *pool,
				   const struct kvr_session_key *key,
				   const struct kvr_session_binding *to,
				   enum kvr_rq_session_how how)
{
	struct kvr_rq_order *o =
		add_order(step, kind, step->r != NULL && pool != step->r->pool ? PREFILL : MAIN);

	o->how = (uint8_t)how;
	o->session.id = key->id;
	o->session.id_len = key->len;
	o->session.to = *to;
	o->session.ref = (struct kvr_session_ref){0};
	return o;
}

void kvr_rq__tell_close(const struct step *step, const struct kvr_rq_pool *pool,
			const struct kvr_session_key *key, const struct kvr_session_binding *to,
			enum kvr_rq_session_how how)
{
	count_event(pool, KVR_RQC_SESSION_CLOSES);
	kvr_rq__about(step, KVR_RQO_CLOSE, pool, key, to, how);
}

static void report_expired(const struct step *step, const struct kvr_rq_pool *pool,
			   const struct kvr_session_key *key, const struct kvr_session_binding *to)
{
	count_event(pool, KVR_RQC_SESSION_EXPIRED);
	kvr_rq__about(step, KVR_RQO_SESSION, pool, key, to, KVR_RQ_SESSION_OVER);
	if (!is_affinity(to))
		kvr_rq__tell_close(step, pool, key, to, KVR_RQ_SESSION_OVER);
}

bool kvr_rq__find(const struct step *step, const struct kvr_rq_pool *pool,
		  const struct kvr_session_key *key, struct kvr_session_binding *to,
		  struct kvr_session_ref *ref)
{
	switch (kvr_session_resolve(pool->sessions, key, step->c->now, to, ref)) {
	case KVR_SESSION_BOUND:
		return true;
	case KVR_SESSION_EXPIRED:
		report_expired(step, pool, key, to);
		return false;
	default:
		return false;
	}
}

/* ---- without a request ------------------------------------------------------------------- */

void kvr_request_session_due(const struct kvr_rq_ctx *c, struct kvr_rq_pool *pool,
			     struct kvr_session_ref ref, struct kvr_rq_orders *out)
{
	const struct step step = {c, NULL, out};
	struct kvr_session_ended e;

	out->n = 0;
	if (!kvr_session_confirm(pool->sessions, ref, c->now, &e))
		return;
	report_expired(&step, pool, &(const struct kvr_session_key){e.id, e.len, 0}, &e.to);
}

enum kvr_code kvr_request_session_release(const struct kvr_rq_ctx *c, struct kvr_rq_pool *pool,
					  const void *id, uint32_t len, uint64_t tag,
					  struct kvr_rq_orders *out)
{
	const struct step step = {c, NULL, out};
	struct kvr_session_binding to;
	struct kvr_session_key key;

	out->n = 0;
	if (pool->sessions == NULL || !kvr_session_key(pool->sessions, id, len, &key) ||
	    !kvr_rq__find(&step, pool, &key, &to, NULL))
		return KVR_E_UNKNOWN_SESSION;
	if (tag != KVR_RQ_TAG_ANY && to.tag >> TAG_CALLER_SHIFT != tag >> TAG_CALLER_SHIFT)
		return KVR_E_NOT_ALLOWED;
	kvr_session_unbind(pool->sessions, &key, NULL);
	count_event(pool, KVR_RQC_SESSION_UNBOUND);
	kvr_rq__about(&step, KVR_RQO_SESSION, pool, &key, &to, KVR_RQ_UNBOUND);
	if (!is_affinity(&to))
		kvr_rq__tell_close(&step, pool, &key, &to, KVR_RQ_CLOSED_BY_CLIENT);
	return KVR_OK;
}
