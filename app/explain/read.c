/* SPDX-License-Identifier: BSD-3-Clause */
/* Reading a route line: hints, override, session, prompt. */
#include "world.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

static const struct ex_field route_fields[] = {
	{"op", EX_STR, 0},
	{"id", EX_STR, EX_REQUIRED},
	{"tokens", EX_U32S, 0},
	{"sequence_hashes", EX_U64S, 0},
	{"isl", EX_U32, 0},
	{"exec_isl", EX_U32, 0},
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
	r->msg.hints.required = r->required;
	r->msg.hints.n_required = (uint32_t)n;
	return true;
}

static bool preferred_read(const json_t *map, struct ex_req *r, struct ex_problem *p)
{
	const char *key;
	json_t *v;

	r->preferred = calloc(json_object_size(map) + 2, sizeof(*r->preferred));
	r->msg.hints.preferred = r->preferred;
	json_object_foreach((json_t *)map, key, v)
	{
		struct kvr_sched_preferred *t = &r->preferred[r->msg.hints.n_preferred++];

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
	r->msg.hints.allowed = r->allowed;
	r->msg.hints.n_allowed = (uint32_t)n;
	r->msg.hints.flags |= KVR_SHINT_ALLOWED;
}

static bool session_read(const json_t *routing, struct ex_req *r, struct ex_problem *p)
{
	static const struct ex_field fields[] = {{"session_id", EX_STR, EX_REQUIRED},
						 {"action", EX_STR, EX_NULL},
						 {"timeout", EX_U64, EX_NULL},
						 {NULL}};
	static const char *const actions[] = {NULL, "open", "close"}; /* enum kvr_rq_action */
	const json_t *c = ex_get(routing, "session_control");
	const char *id, *action = ex_str_or(c, "action", NULL);
	uint64_t timeout;
	uint8_t k;

	if (c == NULL)
		return true;
	if (!ex_check(c, fields, p))
		return false;
	id = ex_str_or(c, "session_id", "");
	if (strlen(id) == 0 || strlen(id) > KVR_SESSION_ID_MAX)
		return ex_bad(p, "a session id has 1 to %u bytes", KVR_SESSION_ID_MAX);
	timeout = ex_u64_or(c, "timeout", 300);
	if (timeout == 0 || timeout > 31536000)
		return ex_bad(p, "a session timeout is 1 to 31536000 seconds");
	for (k = 0; k < 3 && (actions[k] == NULL) != (action == NULL); k++)
		;
	while (action != NULL && k < 3 && strcmp(actions[k], action) != 0)
		k++;
	if (k == 3)
		return ex_bad(p, "unknown session action '%s'", action);
	r->session.action = k;
	r->session.timeout_ns = timeout * UINT64_C(1000000000);
	r->session.id_len = (uint16_t)strlen(id);
	memcpy(r->session.id, id, r->session.id_len);
	return true;
}

static bool routing_read(const json_t *routing, struct ex_req *r, struct ex_problem *p)
{
	struct kvr_sched_hints *h = &r->msg.hints;
	const char *cls;

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
	cls = ex_str_or(routing, "policy_class", "");
	r->msg.policy = (struct kvr_sched_str){cls, (uint32_t)strlen(cls)};
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
	struct kvr_sched_override *out = &r->override;

	if (o == NULL)
		return true;
	if (!ex_check(o, override_fields, p))
		return false;
	r->msg.req.override = out;
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
	r->msg.req.shared = r->shared;
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
	r->msg.req.n_shared = (uint32_t)json_array_size(list);
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
	const char *s = ex_str_or(obj, "phase", kvr_role_name((unsigned int)r->pool->conf.role));
	const int role = kvr_role_find(s);

	r->msg.req.phase = (enum kvr_role)role;
	return role >= 0 || ex_bad(p, "unknown phase '%s'", s);
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
	r->msg.req.sh = prompt.sh;
	r->msg.req.n = prompt.n;
	r->msg.req.isl = (uint32_t)ex_u64_or(obj, "isl", prompt.isl);
	r->msg.req.exec_isl = (uint32_t)ex_u64_or(obj, "exec_isl", 0);
	if (ex_get(obj, "exec_isl") != NULL &&
	    (json_array_size(ex_get(obj, "sequence_hashes")) == 0 || r->msg.req.exec_isl == 0))
		return ex_bad(p, "'exec_isl' is above 0 and goes with 'sequence_hashes'");
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
	    r->pool->conf.role == KVR_ROLE_PREFILL)
		r->pool = r->pool->peer;
	if (r->pool == NULL || !prompt_read(obj, r, p) || !phase_read(obj, r, p) ||
	    !routing_read(ex_get(obj, "routing"), r, p) ||
	    !override_read(ex_get(obj, "override"), r, p) ||
	    !shared_read(ex_get(obj, "shared_hits"), r, p)) {
		ex_req_free(r);
		return NULL;
	}
	r->msg.req.query_only = is_query(ex_get(obj, "annotations"));
	r->pair.required = r->required;
	r->pair.preferred = r->preferred;
	r->msg.pair = r->pool->peer != NULL ? &r->pair : NULL;
	return r;
}

void ex_req_free(struct ex_req *r)
{
	json_decref(r->line);
	free(r->id);
	free(r->sh);
	free(r->shared);
	free(r->allowed);
	free(r->required);
	free(r->preferred);
	free(r);
}
