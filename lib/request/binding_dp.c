/* SPDX-License-Identifier: BSD-3-Clause */
/* Bindings as everybody meets them: found, over, ended beside any request. */
#include "request_pvt.h"

struct kvr_rq_order *kvr_rq__about(const struct step *x, enum kvr_rq_order_kind kind,
				   const struct kvr_rq_pool *p, const struct kvr_session_key *key,
				   const struct kvr_session_binding *to,
				   enum kvr_rq_session_how how)
{
	struct kvr_rq_order *o = order(x, kind, x->r != NULL && p != x->r->pool ? PREFILL : MAIN);

	o->how = (uint8_t)how;
	o->session.id = key->id;
	o->session.id_len = key->len;
	o->session.to = *to;
	o->session.ref = (struct kvr_session_ref){0};
	return o;
}

void kvr_rq__tell_close(const struct step *x, const struct kvr_rq_pool *p,
			const struct kvr_session_key *key, const struct kvr_session_binding *to,
			enum kvr_rq_session_how how)
{
	count(p, KVR_RQC_SESSION_CLOSES);
	kvr_rq__about(x, KVR_RQO_CLOSE, p, key, to, how);
}

static void expired(const struct step *x, const struct kvr_rq_pool *p,
		    const struct kvr_session_key *key, const struct kvr_session_binding *to)
{
	count(p, KVR_RQC_SESSION_EXPIRED);
	kvr_rq__about(x, KVR_RQO_SESSION, p, key, to, KVR_RQ_SESSION_OVER);
	if (!is_affinity(to))
		kvr_rq__tell_close(x, p, key, to, KVR_RQ_SESSION_OVER);
}

bool kvr_rq__find(const struct step *x, const struct kvr_rq_pool *p,
		  const struct kvr_session_key *key, struct kvr_session_binding *to,
		  struct kvr_session_ref *ref)
{
	switch (kvr_session_resolve(p->sessions, key, x->c->now, to, ref)) {
	case KVR_SESSION_BOUND:
		return true;
	case KVR_SESSION_EXPIRED:
		expired(x, p, key, to);
		return false;
	default:
		return false;
	}
}

/* ---- beside requests --------------------------------------------------------------------- */

void kvr_request_session_due(const struct kvr_rq_ctx *c, struct kvr_rq_pool *p,
			     struct kvr_session_ref ref, struct kvr_rq_orders *out)
{
	const struct step x = {c, NULL, out};
	struct kvr_session_ended e;

	out->n = 0;
	if (!kvr_session_confirm(p->sessions, ref, c->now, &e))
		return;
	expired(&x, p, &(const struct kvr_session_key){e.id, e.len, 0}, &e.to);
}

enum kvr_code kvr_request_session_release(const struct kvr_rq_ctx *c, struct kvr_rq_pool *p,
					  const void *id, uint32_t len, uint64_t tag,
					  struct kvr_rq_orders *out)
{
	const struct step x = {c, NULL, out};
	struct kvr_session_binding to;
	struct kvr_session_key key;

	out->n = 0;
	if (p->sessions == NULL || !kvr_session_key(p->sessions, id, len, &key) ||
	    !kvr_rq__find(&x, p, &key, &to, NULL))
		return KVR_E_UNKNOWN_SESSION;
	if (tag != KVR_RQ_TAG_ANY && to.tag >> TAG_CALLER_SHIFT != tag >> TAG_CALLER_SHIFT)
		return KVR_E_NOT_ALLOWED;
	kvr_session_unbind(p->sessions, &key, NULL);
	count(p, KVR_RQC_SESSION_UNBOUND);
	kvr_rq__about(&x, KVR_RQO_SESSION, p, &key, &to, KVR_RQ_UNBOUND);
	if (!is_affinity(&to))
		kvr_rq__tell_close(&x, p, &key, &to, KVR_RQ_CLOSED_BY_CLIENT);
	return KVR_OK;
}
