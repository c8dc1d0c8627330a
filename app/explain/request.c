/* SPDX-License-Identifier: BSD-3-Clause */
/* Requests: reading a route line, names of requests, their memory. */
#include "request.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

static const struct ex_field route_fields[] = {
	{"op", EX_STR, 0},
	{"id", EX_STR, EX_REQUIRED},
	{"tokens", EX_U32S, 0},
	{"sequence_hashes", EX_U64S, 0},
	{"isl", EX_U32, 0},
	{"pool", EX_STR, 0},
	{"phase", EX_STR, EX_NULL},
	{"routing", EX_OBJ, EX_NULL},
	{"override", EX_OBJ, EX_NULL},
	{"annotations", EX_STRS, EX_NULL},
	{"max_tokens", EX_U32, EX_NULL},
	{"mm", EX_ARR, EX_NULL},
	{"shared_hits", EX_ARR, EX_NULL},
	{NULL},
};

static const struct ex_field routing_fields[] = {
	{"backend_instance_id", EX_U64, EX_NULL}, {"prefill_worker_id", EX_U64, EX_NULL},
	{"decode_worker_id", EX_U64, EX_NULL},	  {"dp_rank", EX_U32, EX_NULL},
	{"prefill_dp_rank", EX_U32, EX_NULL},	  {"expected_output_tokens", EX_U32, EX_NULL},
	{"lora_name", EX_STR, EX_NULL},		  {"priority_jump", EX_REAL, EX_NULL},
	{"priority", EX_REAL, EX_NULL},		  {"allowed_worker_ids", EX_U64S, EX_NULL},
	{"routing_constraints", EX_OBJ, EX_NULL}, {"session_control", EX_OBJ, EX_NULL},
	{"strict_priority", EX_U32, EX_NULL},	  {"cache_namespace", EX_STR, EX_NULL},
	{"policy_class", EX_STR, EX_NULL},	  {NULL},
};

static const struct ex_field override_fields[] = {
	{"overlap_score_weight", EX_REAL, EX_NULL},    {"router_temperature", EX_REAL, EX_NULL},
	{"assume_kv_reuse", EX_BOOL, EX_NULL},	       {"track_prefill_tokens", EX_BOOL, EX_NULL},
	{"shared_cache_multiplier", EX_REAL, EX_NULL}, {"overlap_score_credit", EX_REAL, EX_NULL},
	{"prefill_load_scale", EX_REAL, EX_NULL},      {NULL},
};

/* ---- hints ------------------------------------------------------------------------------- */

static uint64_t id_hint(const json_t *routing, const char *name, struct kvr_sched_hints *h,
			uint32_t flag)
{
	if (ex_get(routing, name) != NULL)
		h->flags |= flag;
	return ex_u64_or(routing, name, 0);
}

static bool required_read(const json_t *list, struct ex_req *r, struct ex_problem *p)
{
	size_t n = json_array_size(list), i;
	json_t *v;

	r->required = calloc(n + 2, sizeof(*r->required));
	json_array_foreach(list, i, v)
	{
		const char *s = json_string_value(v);

		if (s == NULL || ex_is_number(v))
			return ex_bad(p, "required_taints wants strings");
		r->required[i] = (struct kvr_sched_str){s, (uint32_t)strlen(s)};
	}
	r->main.hints.required = r->required;
	r->main.hints.n_required = (uint32_t)n;
	return true;
}

static bool preferred_read(const json_t *map, struct ex_req *r, struct ex_problem *p)
{
	const char *key;
	json_t *v;

	r->preferred = calloc(json_object_size(map) + 2, sizeof(*r->preferred));
	r->main.hints.preferred = r->preferred;
	json_object_foreach((json_t *)map, key, v)
	{
		struct kvr_sched_preferred *t = &r->preferred[r->main.hints.n_preferred++];

		if (!json_is_number(v) && !ex_is_number(v))
			return ex_bad(p, "preferred_taints wants a weight for '%s'", key);
		t->taint = (struct kvr_sched_str){key, (uint32_t)strlen(key)};
		t->weight = ex_real(v);
		if (!isfinite(t->weight))
			return ex_bad(p, "the weight of '%s' is out of range", key);
	}
	return true;
}

static bool constraints_read(const json_t *routing, struct ex_req *r, struct ex_problem *p)
{
	static const struct ex_field fields[] = {{"required_taints", EX_ARR, EX_NULL},
						 {"preferred_taints", EX_OBJ, EX_NULL},
						 {NULL}};
	const json_t *c = ex_get(routing, "routing_constraints");

	if (c != NULL && !ex_check(c, fields, p))
		return false;
	return required_read(ex_get(c, "required_taints"), r, p) &&
	       preferred_read(ex_get(c, "preferred_taints"), r, p);
}

static void allowed_read(const json_t *list, struct ex_req *r)
{
	size_t n = json_array_size(list);

	if (list == NULL)
		return;
	r->allowed = calloc(n + 1, sizeof(*r->allowed));
	for (size_t i = 0; i < n; i++)
		r->allowed[i] = ex_u64(json_array_get(list, i));
	r->main.hints.allowed = r->allowed;
	r->main.hints.n_allowed = (uint32_t)n;
	r->main.hints.flags |= KVR_SHINT_ALLOWED;
}

static bool session_read(const json_t *routing, struct ex_req *r, struct ex_problem *p)
{
	static const struct ex_field fields[] = {{"session_id", EX_STR, EX_REQUIRED},
						 {"action", EX_STR, EX_NULL},
						 {"timeout", EX_U64, EX_NULL},
						 {NULL}};
	const json_t *c = ex_get(routing, "session_control");
	const char *action;

	if (c == NULL)
		return true;
	if (!ex_check(c, fields, p))
		return false;
	r->session = ex_str_or(c, "session_id", "");
	if (strlen(r->session) == 0 || strlen(r->session) > KVR_SESSION_ID_MAX)
		return ex_bad(p, "a session id has 1 to %u bytes", KVR_SESSION_ID_MAX);
	r->timeout_s = ex_u64_or(c, "timeout", 300);
	if (r->timeout_s == 0 || r->timeout_s > 31536000)
		return ex_bad(p, "a session timeout is 1 to 31536000 seconds");
	action = ex_str_or(c, "action", "use");
	if (ex_get(c, "action") == NULL)
		r->action = EX_SESSION_USE;
	else if (strcmp(action, "open") == 0)
		r->action = EX_SESSION_OPEN;
	else if (strcmp(action, "close") == 0)
		r->action = EX_SESSION_CLOSE;
	else
		return ex_bad(p, "unknown session action '%s'", action);
	return true;
}

static bool routing_read(const json_t *routing, struct ex_req *r, struct ex_problem *p)
{
	struct kvr_sched_hints *h = &r->main.hints;
	const char *cls;

	h->policy_class = KVR_SCHED_NO_CLASS;
	r->main.req.hints = h;
	if (routing != NULL && !ex_check(routing, routing_fields, p))
		return false;
	h->backend_id = id_hint(routing, "backend_instance_id", h, KVR_SHINT_BACKEND_ID);
	h->prefill_id = id_hint(routing, "prefill_worker_id", h, KVR_SHINT_PREFILL_ID);
	h->decode_id = id_hint(routing, "decode_worker_id", h, KVR_SHINT_DECODE_ID);
	h->dp_rank = (uint32_t)id_hint(routing, "dp_rank", h, KVR_SHINT_DP_RANK);
	h->prefill_dp_rank =
		(uint32_t)id_hint(routing, "prefill_dp_rank", h, KVR_SHINT_PREFILL_DP_RANK);
	h->expected_output_tokens =
		(uint32_t)id_hint(routing, "expected_output_tokens", h, KVR_SHINT_EXPECTED_OUTPUT);
	h->strict_priority = (uint32_t)ex_u64_or(routing, "strict_priority", 0);
	if (ex_get(routing, "priority_jump") != NULL)
		h->priority_jump = ex_real(ex_get(routing, "priority_jump"));
	cls = ex_str_or(routing, "policy_class", NULL);
	if (cls != NULL) /* a name that no class has means the first one */
		h->policy_class = kvr_sched_class_find(r->pool->sched, cls, strlen(cls));
	allowed_read(ex_get(routing, "allowed_worker_ids"), r);
	return constraints_read(routing, r, p) && session_read(routing, r, p);
}

/* ---- override ---------------------------------------------------------------------------- */

static double part(const json_t *o, const char *name, struct kvr_sched_override *out, uint32_t flag)
{
	const json_t *v = ex_get(o, name);

	if (v == NULL)
		return 0;
	out->flags |= flag;
	return json_is_boolean(v) ? json_is_true(v) : ex_real(v);
}

static bool override_read(const json_t *o, struct ex_req *r, struct ex_problem *p)
{
	struct kvr_sched_override *out = &r->main.override;

	if (o == NULL)
		return true;
	if (!ex_check(o, override_fields, p))
		return false;
	r->main.req.override = out;
	out->overlap_score_weight = part(o, "overlap_score_weight", out, KVR_SOVER_SCORE_WEIGHT);
	out->temperature = part(o, "router_temperature", out, KVR_SOVER_TEMPERATURE);
	out->assume_kv_reuse = part(o, "assume_kv_reuse", out, KVR_SOVER_KV_REUSE) != 0;
	out->track_prefill_tokens =
		part(o, "track_prefill_tokens", out, KVR_SOVER_TRACK_PREFILL) != 0;
	out->shared_cache_multiplier =
		part(o, "shared_cache_multiplier", out, KVR_SOVER_SHARED_MULT);
	out->overlap_score_credit = part(o, "overlap_score_credit", out, KVR_SOVER_CREDIT);
	out->prefill_load_scale = part(o, "prefill_load_scale", out, KVR_SOVER_PREFILL_SCALE);
	return true;
}

/* ---- the rest of the line ---------------------------------------------------------------- */

static bool shared_read(const json_t *list, struct ex_req *r, struct ex_problem *p)
{
	uint64_t last = 0;
	size_t i;
	json_t *v;

	r->shared = calloc(json_array_size(list) + 1, sizeof(*r->shared));
	r->main.req.shared = r->shared;
	json_array_foreach(list, i, v)
	{
		const json_t *a = json_array_get(v, 0), *b = json_array_get(v, 1);
		uint64_t lo, hi;

		if (json_array_size(v) != 2 || !json_is_integer(a) || !json_is_integer(b) ||
		    json_integer_value(a) < 0)
			return ex_bad(p, "shared_hits wants [start, end) pairs");
		lo = ex_u64(a);
		hi = ex_u64(b);
		if (json_integer_value(b) < 0 || hi > UINT32_MAX || lo < last || hi < lo)
			return ex_bad(p, "shared_hits wants ascending ranges");
		r->shared[i] = (struct kvr_sched_range){(uint32_t)lo, (uint32_t)hi};
		last = hi;
	}
	r->main.req.n_shared = (uint32_t)json_array_size(list);
	return true;
}

static bool is_query(const json_t *annotations)
{
	size_t i;
	json_t *v;

	json_array_foreach(annotations, i,
			   v) if (strncmp(json_string_value(v), "query_instance_id:", 18) ==
				  0) return true;
	return false;
}

static bool phase_read(const json_t *obj, struct ex_req *r, struct ex_problem *p)
{
	static const char *const name[] = {"aggregated", "prefill", "decode"};
	const char *s = ex_str_or(obj, "phase", name[r->pool->conf.role]);

	for (int i = 0; i < 3; i++)
		if (strcmp(s, name[i]) == 0) {
			r->main.req.phase = (enum kvr_sched_phase)i;
			return true;
		}
	return ex_bad(p, "unknown phase '%s'", s);
}

static bool prompt_read(const json_t *obj, struct ex_req *r, struct ex_problem *p)
{
	const json_t *routing = ex_get(obj, "routing");
	struct ex_prompt prompt;

	if (json_object_get(obj, "sequence_hashes") != NULL && json_object_get(obj, "isl") == NULL)
		return ex_bad(p, "missing field 'isl'");
	if (json_object_get(obj, "tokens") != NULL && json_object_get(obj, "isl") != NULL)
		return ex_bad(p, "'isl' goes with 'sequence_hashes'");
	if (!ex_prompt_read(obj, r->pool->conf.block_size, ex_str_or(routing, "lora_name", NULL),
			    ex_str_or(routing, "cache_namespace", NULL), &prompt, p))
		return false;
	r->sh = prompt.sh;
	r->main.req.sh = prompt.sh;
	r->main.req.n = prompt.n;
	r->main.req.isl = (uint32_t)ex_u64_or(obj, "isl", prompt.isl);
	return true;
}

struct ex_req *ex_req_read(struct ex_world *w, const json_t *obj, struct ex_problem *p)
{
	struct ex_req *r;

	if (!ex_check(obj, route_fields, p))
		return NULL;
	r = calloc(1, sizeof(*r));
	r->line = json_incref((json_t *)obj);
	r->id = strdup(ex_str_or(obj, "id", ""));
	r->pool = ex_pool_of(w, obj, p);
	if (r->pool != NULL && ex_get(obj, "pool") == NULL && r->pool->peer != NULL &&
	    r->pool->conf.role == KVR_POOL_PREFILL)
		r->pool = r->pool->peer;
	if (r->pool == NULL || !prompt_read(obj, r, p) || !phase_read(obj, r, p) ||
	    !routing_read(ex_get(obj, "routing"), r, p) ||
	    !override_read(ex_get(obj, "override"), r, p) ||
	    !shared_read(ex_get(obj, "shared_hits"), r, p)) {
		ex_req_free(r);
		return NULL;
	}
	r->main.req.query_only = is_query(ex_get(obj, "annotations"));
	return r;
}

void ex_req_free(struct ex_req *r)
{
	if (r->reserved)
		kvr_session_unreserve(r->pool->sessions);
	json_decref(r->line);
	free(r->id);
	free(r->sh);
	free(r->shared);
	free(r->allowed);
	free(r->required);
	free(r->preferred);
	free(r->transfer);
	free(r);
}

/* ---- names and slots --------------------------------------------------------------------- */

int ex_req_find(struct ex_world *w, const json_t *obj, struct ex_req **r, struct ex_problem *p)
{
	const char *id = ex_str_or(obj, "id", "");
	const json_t *at = json_object_get(w->ids, id);

	*r = NULL;
	if (at == NULL) {
		ex_bad(p, "unknown id '%s'", id);
		return -1;
	}
	if (json_is_null(at))
		return 0;
	*r = w->live[json_integer_value(at)];
	return 1;
}

bool ex_req_live(const struct ex_world *w, const char *id)
{
	return json_is_integer(json_object_get(w->ids, id));
}

void ex_req_ended(struct ex_world *w, const char *id)
{
	if (!ex_req_live(w, id))
		json_object_set_new(w->ids, id, json_null());
}

void ex_req_enter(struct ex_world *w, struct ex_req *r)
{
	if (w->n_live == w->cap_live) {
		w->cap_live = w->cap_live * 2 + 64;
		w->live = realloc(w->live, w->cap_live * sizeof(*w->live));
		if (w->live == NULL)
			abort();
	}
	r->entered = true;
	r->at = w->n_live;
	w->live[w->n_live++] = r;
	json_object_set_new(w->ids, r->id, json_integer((json_int_t)r->at));
}

static void leave(struct ex_world *w, struct ex_req *r)
{
	struct ex_req *last = w->live[--w->n_live];

	w->live[r->at] = last;
	last->at = r->at;
	json_object_set_new(w->ids, last->id, json_integer((json_int_t)last->at));
	json_object_set_new(w->ids, r->id, json_null());
}

bool ex_leg_take(struct ex_pool *pool, struct ex_req *r, struct ex_leg *leg)
{
	if (pool->n_free == 0)
		return false;
	leg->slot = pool->free_slot[--pool->n_free];
	leg->on = true;
	pool->by_slot[leg->slot] = r;
	return true;
}

void ex_leg_release(struct ex_world *w, struct ex_pool *pool, struct ex_leg *leg)
{
	if (!leg->on)
		return;
	ex_session_leg_over(w, pool, leg);
	leg->on = false;
	pool->by_slot[leg->slot] = NULL;
	pool->free_slot[pool->n_free++] = leg->slot;
}

void ex_leg_end(struct ex_world *w, struct ex_pool *pool, struct ex_leg *leg, bool cancel)
{
	if (!leg->on)
		return;
	if (cancel)
		kvr_sched_cancel(pool->sched, leg->slot, w->now);
	else
		kvr_sched_finish(pool->sched, leg->slot, w->now);
	ex_leg_release(w, pool, leg);
}

void ex_req_end(struct ex_world *w, struct ex_req *r, bool cancel)
{
	ex_leg_end(w, r->pool, &r->main, cancel);
	if (r->pool->peer != NULL)
		ex_leg_end(w, r->pool->peer, &r->prefill, cancel);
	if (r->entered)
		leave(w, r);
	else
		ex_req_ended(w, r->id);
	ex_req_free(r);
}
