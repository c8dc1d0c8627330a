/* SPDX-License-Identifier: BSD-3-Clause */
/* Operations route, resend, prefill_done, output, finish, cancel, fail, session_ack, as events. */
#include "scenario_pvt.h"

#include <string.h>

#define SAY(w, r, k, ...)                                                                          \
	(w)->run->event(r, (struct kvr_rq_event){.kind = KVR_RQE_##k, __VA_ARGS__})

/* ---- reading ----------------------------------------------------------------------------- */

static struct kvr_str read_string(const char *s)
{
	return (struct kvr_str){s, (uint32_t)strlen(s)};
}

/* {taint: weight, ...} */
static bool read_preferred(const json_t *map, struct kvr_sc_req *r, struct kvr_sc_problem *p)
{
	struct kvr_hint_preferred *list =
		kvr_sc_alloc(r->line, json_object_size(map), sizeof(*list));
	struct kvr_hints *h = &r->msg.hints;
	const char *key;
	json_t *v;

	h->preferred = list;
	json_object_foreach ((json_t *)map, key, v) {
		if (!kvr_sc_is_real(v))
			return kvr_sc_bad(p, "preferred_taints must have a weight for '%s'", key);
		list[h->n_preferred++] =
			(struct kvr_hint_preferred){read_string(key), kvr_sc_real(v)};
	}
	return true;
}

static const struct kvr_str *read_strings(struct kvr_sc_line *l, const json_t *array)
{
	struct kvr_str *list = kvr_sc_alloc(l, json_array_size(array), sizeof(*list));
	size_t i;
	json_t *v;

	json_array_foreach (array, i, v)
		list[i] = read_string(json_string_value(v));
	return list;
}

/* A list member of struct kvr_hints: the pointer, and then the number of entries. */
static void set_list(void *at, const void *list, size_t n)
{
	*(const void **)at = list;
	*(uint32_t *)((uint8_t *)at + sizeof(list)) = (uint32_t)n;
}

/* Read the value of a hint, which has the type of its format. */
static bool read_hint(const struct kvr_hint_row *row, const json_t *v, struct kvr_sc_req *r,
		      struct kvr_sc_problem *p)
{
	void *at = (uint8_t *)&r->msg.hints + row->at;

	r->msg.hints.present |= KVR_HAS(row->type);
	switch (row->format) {
	case KVR_FORMAT_U64:
		*(uint64_t *)at = kvr_sc_u64(v);
		return true;
	case KVR_FORMAT_U32:
		*(uint32_t *)at = (uint32_t)kvr_sc_u64(v);
		return true;
	case KVR_FORMAT_I32:
		*(int32_t *)at = (int32_t)kvr_sc_real(v);
		return true;
	case KVR_FORMAT_F64:
		*(double *)at = kvr_sc_real(v);
		return true;
	case KVR_FORMAT_TEXT:
		*(struct kvr_str *)at = read_string(json_string_value(v));
		return true;
	case KVR_FORMAT_U64S:
		set_list(at, kvr_sc_ints(r->line, v, sizeof(uint64_t)), json_array_size(v));
		return true;
	case KVR_FORMAT_TEXTS:
		set_list(at, read_strings(r->line, v), json_array_size(v));
		return true;
	default:
		return read_preferred(v, r, p);
	}
}

static bool read_hints(const json_t *o, struct kvr_sc_req *r, struct kvr_sc_problem *p)
{
	for (uint32_t i = 0; i < KVR_HINT_ROWS; i++) {
		const struct kvr_hint_row *row = &kvr_hint_rows[i];
		const json_t *v = NULL;

		if (row->format != 0 && row->json[0] != '\0')
			v = kvr_sc_get(o, row->json);
		if (v != NULL && !read_hint(row, v, r, p))
			return false;
	}
	return true;
}

static bool read_session(const json_t *c, struct kvr_rq_session *s, struct kvr_sc_problem *p)
{
	static const char *const actions[] = {"", "open", "close"}; /* enum kvr_rq_action */
	const char *action = kvr_sc_str_or(c, "action", ""), *id;
	const uint64_t timeout = kvr_sc_u64_or(c, "timeout", 300);

	if (c == NULL)
		return true;
	id = kvr_sc_session_id(c, p);
	if (id == NULL)
		return false;
	if (timeout == 0 || timeout > 31536000)
		return kvr_sc_bad(p, "a session timeout must be 1 to 31536000 seconds");
	while (s->action < RTE_DIM(actions) && strcmp(actions[s->action], action) != 0)
		s->action++;
	if (s->action == RTE_DIM(actions))
		return kvr_sc_bad(p, "unknown session action '%s'", action);
	s->timeout_ns = timeout * UINT64_C(1000000000);
	s->id_len = (uint16_t)strlen(id);
	memcpy(s->id, id, s->id_len);
	return true;
}

/* [[worker, dp_rank], ...] */
static bool read_failed_at(const json_t *list, struct kvr_sc_req *r, struct kvr_sc_problem *p)
{
	struct kvr_wire_rank *at = kvr_sc_alloc(r->line, json_array_size(list), sizeof(*at));
	struct kvr_hints *h = &r->msg.hints;
	size_t i;
	json_t *v;

	if (json_array_size(list) > KVR_HINT_MAX_FAILED_AT)
		return kvr_sc_bad(p, "failed_at has at most %u ranks", KVR_HINT_MAX_FAILED_AT);
	h->failed_at = at;
	json_array_foreach (list, i, v) {
		const json_t *worker = json_array_get(v, 0), *rank = json_array_get(v, 1);

		if (json_array_size(v) != 2 || !kvr_sc_is_u64(worker, UINT64_MAX) ||
		    !kvr_sc_is_u64(rank, UINT32_MAX))
			return kvr_sc_bad(p, "failed_at wants [worker, dp_rank] pairs");
		at[h->n_failed_at++] = (struct kvr_wire_rank){
			.worker = kvr_sc_u64(worker), .dp_rank = (uint32_t)kvr_sc_u64(rank)};
	}
	return true;
}

static bool read_routing(const json_t *o, struct kvr_sc_req *r, struct kvr_sc_problem *p)
{
	const json_t *expected = kvr_sc_get(o, "expected_output_tokens");
	struct kvr_hints *h = &r->msg.hints;

	if (expected != NULL) {
		h->present |= KVR_HAS_EXPECTED_OUTPUT;
		h->expected_output_tokens = (uint32_t)kvr_sc_u64(expected);
	}
	if (!read_hints(o, r, p) || !read_hints(kvr_sc_get(o, "routing_constraints"), r, p))
		return false;
	/* With room for the additions of a pair's legs. */
	r->pair.required = kvr_sc_alloc(r->line, h->n_required + 1, sizeof(*r->pair.required));
	r->pair.preferred = kvr_sc_alloc(r->line, h->n_preferred + 1, sizeof(*r->pair.preferred));
	return read_failed_at(kvr_sc_get(o, "failed_at"), r, p) &&
	       read_session(kvr_sc_get(o, "session_control"), &r->session, p);
}

static void read_override(const json_t *o, struct kvr_hint_overrides *out)
{
#define NAME(name, number, json, range) [number] = json,
	static const char *const names[] = {KVR_OVERRIDES(NAME)};

	for (uint32_t i = 1; i < RTE_DIM(names); i++) {
		const json_t *v = kvr_sc_get(o, names[i]);

		if (v == NULL)
			continue;
		out->given |= 1u << i;
		out->value[i] = json_is_boolean(v) ? json_is_true(v) : kvr_sc_real(v);
	}
}

static bool read_shared_hits(const json_t *list, struct kvr_sc_req *r, struct kvr_sc_problem *p)
{
	struct kvr_hint_range *s = kvr_sc_alloc(r->line, json_array_size(list), sizeof(*s));
	uint64_t last = 0;
	size_t i;
	json_t *v;

	r->msg.hints.shared = s;
	json_array_foreach (list, i, v) {
		const json_t *a = json_array_get(v, 0), *b = json_array_get(v, 1);

		if (json_array_size(v) != 2 || !kvr_sc_is_u64(a, UINT32_MAX) ||
		    !kvr_sc_is_u64(b, UINT32_MAX) || kvr_sc_u64(a) < last ||
		    kvr_sc_u64(b) < kvr_sc_u64(a))
			return kvr_sc_bad(p, "shared_hits must be ascending [start, end) pairs");
		last = kvr_sc_u64(b);
		s[i] = (struct kvr_hint_range){(uint32_t)kvr_sc_u64(a), (uint32_t)last};
	}
	r->msg.hints.n_shared = (uint32_t)json_array_size(list);
	return true;
}

static bool is_query(const json_t *annotations)
{
	size_t i;
	json_t *v;

	json_array_foreach (annotations, i, v)
		if (strncmp(json_string_value(v), "query_instance_id:", 18) == 0)
			return true;
	return false;
}

static bool read_prompt(const json_t *obj, struct kvr_sc_req *r, struct kvr_sc_problem *p)
{
	const json_t *isl = kvr_sc_get(obj, "isl"), *exec = kvr_sc_get(obj, "exec_isl");
	const json_t *hashes = kvr_sc_get(obj, "sequence_hashes");
	struct kvr_sched_req *req = &r->msg.req;
	struct kvr_sc_prompt prompt;

	if ((hashes == NULL) != (isl == NULL))
		return kvr_sc_bad(p, "'isl' requires 'sequence_hashes'");
	if (exec != NULL && (json_array_size(hashes) == 0 || kvr_sc_u64(exec) == 0))
		return kvr_sc_bad(p, "'exec_isl' must be above 0, and requires 'sequence_hashes'");
	if (!kvr_sc_prompt_read(r->line, kvr_sc_get(obj, "routing"), r->pool->conf.block_size,
				&prompt, p))
		return false;
	req->sh = prompt.sh;
	req->n = prompt.n;
	req->isl = (uint32_t)kvr_sc_u64_or(obj, "isl", prompt.isl);
	req->exec_isl = (uint32_t)kvr_sc_u64_or(obj, "exec_isl", 0);
	return true;
}

/* A health probe leaves no trace in index and sessions. */
static void leaves_no_trace(struct kvr_sc_req *r)
{
	r->msg.req.n = r->msg.req.exec_isl = r->msg.hints.n_shared = 0;
	r->session.id_len = 0;
	r->session.action = KVR_RQ_USE;
}

/* Read a request, which is not entered under its id yet. @return NULL with the problem noted. */
static struct kvr_sc_req *read_request(struct kvr_sc_world *w, struct kvr_sc_line *l,
				       struct kvr_sc_problem *p)
{
	struct kvr_sc_req *r = kvr_sc_alloc(l, 1, sizeof(*r));
	struct kvr_sc_pool *pool = kvr_sc_pool_of(w, l->obj, p);
	int phase;

	if (pool == NULL)
		return NULL;
	if (kvr_sc_get(l->obj, "pool") == NULL && pool->peer != NULL &&
	    pool->conf.role == KVR_ROLE_PREFILL)
		pool = pool->peer;
	phase = kvr_role_find(
		kvr_sc_str_or(l->obj, "phase", kvr_role_name((unsigned int)pool->conf.role)));
	r->line = l;
	r->id = kvr_sc_str_or(l->obj, "id", "");
	r->pool = pool;
	r->msg.req.phase = (enum kvr_role)phase;
	r->msg.req.query_only = is_query(kvr_sc_get(l->obj, "annotations"));
	r->msg.pair = pool->peer != NULL ? &r->pair : NULL;
	r->msg.req.probe = json_is_true(kvr_sc_get(l->obj, "probe"));
	r->msg.book = json_is_true(kvr_sc_get(l->obj, "book"));
	read_override(kvr_sc_get(l->obj, "override"), &r->msg.hints.overrides);
	if (phase < 0)
		kvr_sc_bad(p, "unknown phase '%s'", kvr_sc_str_or(l->obj, "phase", ""));
	if (r->msg.req.probe + r->msg.book + r->msg.req.query_only > 1)
		return kvr_sc_bad(p, "a request can be only one of query, probe and booking"), NULL;
	if (phase < 0 || !read_prompt(l->obj, r, p) ||
	    !read_routing(kvr_sc_get(l->obj, "routing"), r, p) ||
	    !read_shared_hits(kvr_sc_get(l->obj, "shared_hits"), r, p))
		return NULL;
	if (r->msg.req.probe)
		leaves_no_trace(r);
	return r;
}

/* ---- operations -------------------------------------------------------------------------- */

/* Whether a worker has the leg and has not ended it. */
static bool has_prefill(const struct kvr_sc_req *r, uint32_t leg)
{
	return r->r.leg[leg].state == KVR_RQS_SENT || r->r.leg[leg].state == KVR_RQS_RUNNING;
}

bool kvr_sc_op_route(struct kvr_sc_world *w, struct kvr_sc_line *l, struct kvr_sc_problem *p)
{
	struct kvr_sc_req *r = read_request(w, l, p), *known;
	bool queued;

	if (r == NULL)
		return false;
	known = kvr_sc_req_live(w, r->id);
	if (known == NULL) {
		l->kept = true;
		w->run->arrive(r);
		return true;
	}
	queued = known->queued;
	known->queued = false; /* the answer is for the new message */
	SAY(w, known, REPEATED);
	known->queued = queued;
	return true;
}

/* A client resends only while it does not know that a worker has the request. */
bool kvr_sc_op_resend(struct kvr_sc_world *w, struct kvr_sc_line *l, struct kvr_sc_problem *p)
{
	struct kvr_sc_req *r;
	const int known = kvr_sc_req_find(w, l->obj, &r, p);

	if (known == 1)
		SAY(w, r, REPEATED, .flags = KVR_RQEF_SAME | KVR_RQEF_RESEND);
	return known >= 0;
}

static void end_prefill(struct kvr_sc_world *w, struct kvr_sc_req *r, uint16_t flags)
{
	if (has_prefill(r, KVR_LEG_PREFILL) && !r->msg.book) /* the client ends that leg too */
		SAY(w, r, FIN, .leg = KVR_LEG_PREFILL, .flags = flags);
}

bool kvr_sc_op_prefill_done(struct kvr_sc_world *w, struct kvr_sc_line *l, struct kvr_sc_problem *p)
{
	struct kvr_sc_req *r;
	const int known = kvr_sc_req_find(w, l->obj, &r, p);

	if (known != 1)
		return known == 0;
	if (has_prefill(r, KVR_LEG_MAIN))
		SAY(w, r, ITEM, .flags = KVR_RQEF_FIRST);
	end_prefill(w, r, KVR_RQEF_RESULT);
	return true;
}

bool kvr_sc_op_output(struct kvr_sc_world *w, struct kvr_sc_line *l, struct kvr_sc_problem *p)
{
	const uint64_t n = kvr_sc_u64_or(l->obj, "tokens", 0);
	struct kvr_sc_req *r;
	const int known = kvr_sc_req_find(w, l->obj, &r, p);

	if (known != 1)
		return known == 0;
	if (r->generated + n > UINT32_MAX)
		return kvr_sc_bad(p, "more than 2^32-1 tokens");
	if (n == 0)
		return true;
	if (!has_prefill(r, KVR_LEG_MAIN))
		end_prefill(w, r, KVR_RQEF_RESULT);
	if (!r->live || !has_prefill(r, KVR_LEG_MAIN))
		return true; /* the decode leg was rejected, or waits */
	SAY(w, r, ITEM, .flags = KVR_RQEF_FIRST);
	w->run->poll(w); /* the prefill ends before the item's tokens count */
	r->generated += n;
	SAY(w, r, ITEM, .tokens = (uint32_t)r->generated);
	return true;
}

/* End a request. The worker of its prefill leg ends that leg too. */
static bool end_request(struct kvr_sc_world *w, struct kvr_sc_line *l, struct kvr_sc_problem *p,
			uint8_t kind, uint16_t flags)
{
	struct kvr_sc_req *r;
	const int known = kvr_sc_req_find(w, l->obj, &r, p);

	if (known != 1)
		return known == 0;
	r->failed = (flags & KVR_RQEF_ERROR) != 0;
	/* Before a worker has the request, it can only be cancelled. */
	if (!has_prefill(r, KVR_LEG_MAIN))
		kind = KVR_RQE_CANCEL;
	w->run->event(r, (struct kvr_rq_event){.kind = kind, .flags = flags});
	if (has_prefill(r, KVR_LEG_PREFILL) && !r->msg.book)
		w->run->poll(w); /* the router acts on the end before that worker does */
	end_prefill(w, r, r->failed ? KVR_RQEF_ERROR : KVR_RQEF_RESULT);
	return true;
}

bool kvr_sc_op_finish(struct kvr_sc_world *w, struct kvr_sc_line *l, struct kvr_sc_problem *p)
{
	return end_request(w, l, p, KVR_RQE_FIN, 0);
}

/* Without a status it tells nothing about its rank. The prefill leg alone, or the request. */
bool kvr_sc_op_fail(struct kvr_sc_world *w, struct kvr_sc_line *l, struct kvr_sc_problem *p)
{
	const char *status = kvr_sc_str_or(l->obj, "status", "");
	const bool prefill = strcmp(kvr_sc_str_or(l->obj, "phase", ""), "prefill") == 0;
	uint16_t flags = KVR_RQEF_ERROR;
	struct kvr_sc_req *r;
	int known;

	if (strcmp(status, "failed") == 0)
		flags |= KVR_RQEF_FAILED;
	else if (strcmp(status, "refused") == 0)
		flags |= KVR_RQEF_REFUSED;
	else if (status[0] != '\0')
		return kvr_sc_bad(p, "unknown status '%s'", status);
	if (!prefill)
		return end_request(w, l, p, KVR_RQE_FIN, flags);
	known = kvr_sc_req_find(w, l->obj, &r, p);
	if (known == 1)
		end_prefill(w, r, flags);
	return known >= 0;
}

bool kvr_sc_op_cancel(struct kvr_sc_world *w, struct kvr_sc_line *l, struct kvr_sc_problem *p)
{
	return end_request(w, l, p, KVR_RQE_CANCEL, 0);
}

bool kvr_sc_op_session_ack(struct kvr_sc_world *w, struct kvr_sc_line *l, struct kvr_sc_problem *p)
{
	struct kvr_sc_req *r;
	const int known = kvr_sc_req_find(w, l->obj, &r, p);

	if (known != 1)
		return known == 0;
	if (r->r.leg[KVR_LEG_MAIN].state != KVR_RQS_HELD)
		return kvr_sc_bad(p, "request '%s' opens no session", r->id);
	if (strcmp(kvr_sc_str_or(l->obj, "status", "ok"), "ok") == 0)
		SAY(w, r, OPENED);
	else
		SAY(w, r, NOT_OPENED, .code = 1);
	return true;
}
