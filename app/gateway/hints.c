/* SPDX-License-Identifier: BSD-3-Clause */
#include "hints_pvt.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>

#define PREFIX "x-kvroute-"

/* Where a value comes from: a header's text has no type, so it is read as the row wants it. */
struct arg {
	struct kvr_json_value v; /* of an object; of a header: its text as a number */
	bool header;
};

enum kind { K_TEXT, K_U32, K_I32, K_U64, K_F64, K_FLAG, K_OWN };

struct row {
	const char *name;
	enum kind kind;
	size_t offset, size;
	int (*take)(struct gw_hints *h, const struct arg *a); /* K_OWN */
	bool list; /* something for the list of lib/client */
};

int gw_hints_text(const struct kvr_json_value *v, char *buf, size_t size)
{
	const int64_t n = kvr_json_string(v, buf, size);

	return n < 0 || memchr(buf, '\0', (size_t)n) != NULL ? -EINVAL : (int)n;
}

static int take_text(const struct arg *a, char *buf, size_t size)
{
	if (!a->header)
		return gw_hints_text(&a->v, buf, size) < 0 ? -EINVAL : 0;
	if (a->v.len >= size || memchr(a->v.p, '\0', a->v.len) != NULL)
		return -EINVAL;
	memcpy(buf, a->v.p, a->v.len);
	buf[a->v.len] = '\0';
	return 0;
}

/* Numbers in headers are written as in JSON. */
static struct kvr_json_value number(const struct arg *a)
{
	struct kvr_json_value v = a->v;

	if (a->header && kvr_json_parse(a->v.p, a->v.len, &v, NULL) != 0)
		v = (struct kvr_json_value){0};
	return v;
}

static int take_u32(const struct arg *a, uint32_t *out)
{
	const struct kvr_json_value v = number(a);
	uint64_t n;

	if (kvr_json_u64(&v, &n) != 0 || n > UINT32_MAX)
		return -EINVAL;
	*out = (uint32_t)n;
	return 0;
}

static int take_i32(const struct arg *a, int32_t *out)
{
	const struct kvr_json_value v = number(a);
	int64_t n;

	if (kvr_json_i64(&v, &n) != 0 || n < INT32_MIN || n > INT32_MAX)
		return -EINVAL;
	*out = (int32_t)n;
	return 0;
}

static int take_f64(const struct arg *a, double *out)
{
	const struct kvr_json_value v = number(a);

	return kvr_json_f64(&v, out) != 0 ? -EINVAL : 0;
}

static int take_flag(const struct arg *a, bool *out)
{
	struct kvr_json_value v = a->v;

	if (a->header && a->v.len == 1 && (a->v.p[0] == '0' || a->v.p[0] == '1')) {
		*out = a->v.p[0] == '1';
		return 0;
	}
	v = number(a);
	return kvr_json_bool(&v, out) != 0 ? -EINVAL : 0;
}

/* Next part of a list in a header. @return false: no more. */
static bool next_part(struct arg *list, struct arg *part)
{
	const char *p = list->v.p, *end = p + list->v.len, *comma;

	if (list->v.len == 0)
		return false;
	comma = memchr(p, ',', list->v.len);
	list->v.p = comma != NULL ? comma + 1 : end;
	list->v.len = (size_t)(end - list->v.p);
	if (comma != NULL)
		end = comma;
	while (p < end && *p == ' ')
		p++;
	while (end > p && end[-1] == ' ')
		end--;
	*part = (struct arg){{p, (size_t)(end - p), KVR_JSON_NONE}, true};
	return true;
}

/* Elements of an array, or parts of a header. */
struct elements {
	struct arg list;
	struct kvr_json_iter it;
};

static int begin(const struct arg *a, struct elements *e)
{
	e->list = *a;
	if (!a->header && a->v.type != KVR_JSON_ARRAY)
		return -EINVAL;
	if (!a->header)
		e->it = kvr_json_begin(&a->v);
	return 0;
}

static bool next(struct elements *e, struct arg *out)
{
	struct kvr_json_value name;

	if (e->list.header)
		return next_part(&e->list, out);
	out->header = false;
	return kvr_json_next(&e->it, &name, &out->v);
}

static int allowed(struct gw_hints *h, const struct arg *a)
{
	struct elements e;
	struct arg one;
	int rc = begin(a, &e);

	h->n_allowed = 0;
	while (rc == 0 && next(&e, &one)) {
		const struct kvr_json_value v = number(&one);

		if (h->n_allowed == GW_HINT_WORKERS)
			return -EINVAL;
		rc = kvr_json_u64(&v, &h->allowed[h->n_allowed++]);
	}
	return rc;
}

static int required(struct gw_hints *h, const struct arg *a)
{
	struct elements e;
	struct arg one;
	int rc = begin(a, &e);

	h->n_required = 0;
	while (rc == 0 && next(&e, &one)) {
		if (h->n_required == GW_HINT_TAINTS)
			return -EINVAL;
		rc = take_text(&one, h->required[h->n_required++], sizeof(h->required[0]));
	}
	return rc;
}

/* An object {taint: weight}, or in a header taint=weight. */
static int preferred(struct gw_hints *h, const struct arg *a)
{
	struct kvr_json_iter it = kvr_json_begin(&a->v);
	struct arg list = *a, one = {.header = a->header}, weight = one;
	int rc = 0;

	h->n_preferred = 0;
	if (!a->header && a->v.type != KVR_JSON_OBJECT)
		return -EINVAL;
	while (rc == 0 &&
	       (a->header ? next_part(&list, &one) : kvr_json_next(&it, &one.v, &weight.v))) {
		if (h->n_preferred == GW_HINT_TAINTS)
			return -EINVAL;
		if (a->header) {
			const char *eq = memrchr(one.v.p, '=', one.v.len);

			if (eq == NULL)
				return -EINVAL;
			weight.v.p = eq + 1;
			weight.v.len = (size_t)(one.v.p + one.v.len - weight.v.p);
			one.v.len = (size_t)(eq - one.v.p);
		}
		rc = take_f64(&weight, &h->weight[h->n_preferred]);
		if (rc == 0)
			rc = take_text(&one, h->preferred[h->n_preferred], sizeof(h->preferred[0]));
		h->n_preferred++;
	}
	return rc;
}

static int nested(struct gw_hints *h, const struct arg *a)
{
	char err[1];

	if (a->header || a->v.type != KVR_JSON_OBJECT)
		return -EINVAL;
	return gw_hints_object(h, &a->v, err, sizeof(err));
}

static int extra(struct gw_hints *h, const struct arg *a)
{
	struct elements e;
	struct arg one;
	int rc = begin(a, &e);

	while (rc == 0 && next(&e, &one)) {
		if (!one.header && one.v.type != KVR_JSON_STRING)
			return -EINVAL;
		if (!one.header && kvr_json_equals(&one.v, "worker_id"))
			h->explain = true;
		else if (!one.header && kvr_json_equals(&one.v, "timing"))
			h->timing = true;
	}
	return rc;
}

static int annotations(struct gw_hints *h, const struct arg *a)
{
	char err[1];

	return a->header ? -EINVAL : gw_hints_annotations(h, &a->v, err, sizeof(err));
}

static int override(struct gw_hints *h, const struct arg *a)
{
	char err[1];

	return a->header ? -EINVAL : gw_hints_override(h, &a->v, err, sizeof(err));
}

#define AT(f) offsetof(struct gw_hints, f), sizeof(((struct gw_hints *)0)->f)
#define TEXT(n, f)                                                                                 \
	{                                                                                          \
		n, K_TEXT, AT(f), NULL, true                                                       \
	}
#define NUMBER(n, k, f)                                                                            \
	{                                                                                          \
		n, k, AT(f), NULL, true                                                            \
	}
#define FLAG(n, f)                                                                                 \
	{                                                                                          \
		n, K_FLAG, AT(f), NULL, false                                                      \
	}
#define OWN(n, fn)                                                                                 \
	{                                                                                          \
		n, K_OWN, 0, 0, fn, true                                                           \
	}
#define GROUP(n, fn)                                                                               \
	{                                                                                          \
		n, K_OWN, 0, 0, fn, false                                                          \
	}

/* clang-format off */
static const struct row rows[ROWS] = {
	[R_SESSION] = TEXT("session_id", session),
	[R_ACTION] = TEXT("action", action),
	[R_TIMEOUT] = NUMBER("timeout", K_U32, timeout_s),
	[R_LORA] = TEXT("lora_name", lora),
	[R_NAMESPACE] = TEXT("cache_namespace", ns),
	[R_SALT] = TEXT("cache_salt", ns),
	[R_POLICY] = TEXT("policy_class", policy),
	[R_JUMP] = NUMBER("priority_jump", K_F64, priority_jump),
	[R_LATENCY] = NUMBER("latency_sensitivity", K_F64, priority_jump),
	[R_STRICT] = NUMBER("strict_priority", K_U32, strict_priority),
	[R_PRIORITY] = NUMBER("priority", K_I32, priority),
	[R_EXPECTED] = {"expected_output_tokens", K_U32, AT(expected_output_tokens), NULL, false},
	[R_OSL] = {"osl", K_U32, AT(expected_output_tokens), NULL, false},
	[R_LEASE] = {"lease_ms", K_U32, AT(lease_ms), NULL, false},
	[R_BACKEND] = NUMBER("backend_instance_id", K_U64, backend),
	[R_WORKER] = NUMBER("worker_id", K_U64, backend),
	[R_PREFILL] = NUMBER("prefill_worker_id", K_U64, prefill_worker),
	[R_DECODE] = NUMBER("decode_worker_id", K_U64, decode_worker),
	[R_RANK] = NUMBER("dp_rank", K_U32, dp_rank),
	[R_PREFILL_RANK] = NUMBER("prefill_dp_rank", K_U32, prefill_dp_rank),
	[R_ALLOWED] = OWN("allowed_worker_ids", allowed),
	[R_REQUIRED] = OWN("required_taints", required),
	[R_PREFERRED] = OWN("preferred_taints", preferred),
	[R_QUERY] = FLAG("query_only", query),
	[R_EXPLAIN] = FLAG("explain", explain),
	[R_TIMING] = FLAG("timing", timing),
	[R_CONSTRAINTS] = GROUP("routing_constraints", nested),
	[R_CONTROL] = GROUP("session_control", nested),
	[R_AGENT] = GROUP("agent_hints", nested),
	[R_EXTRA] = GROUP("extra_fields", extra),
	[R_ANNOTATIONS] = GROUP("annotations", annotations),
	[R_OVERRIDE] = OWN("router_config_override", override),
};
/* clang-format on */

static int take(struct gw_hints *h, unsigned int i, const struct arg *a, char *err, size_t errlen)
{
	const struct row *r = &rows[i];
	void *at = (char *)h + r->offset;
	int rc;

	switch (r->kind) {
	case K_TEXT:
		rc = take_text(a, at, r->size);
		break;
	case K_U32:
		rc = take_u32(a, at);
		break;
	case K_I32:
		rc = take_i32(a, at);
		break;
	case K_U64: {
		const struct kvr_json_value v = number(a);

		rc = kvr_json_u64(&v, at);
		break;
	}
	case K_F64:
		rc = take_f64(a, at);
		break;
	case K_FLAG:
		rc = take_flag(a, at);
		break;
	default:
		rc = r->take(h, a);
	}
	if (rc != 0) {
		snprintf(err, errlen, "%s: wrong type, or out of range", r->name);
		return -EINVAL;
	}
	h->given |= UINT64_C(1) << i;
	h->any |= r->list;
	return 0;
}

int gw_hints_object(struct gw_hints *h, const struct kvr_json_value *object, char *err,
		    size_t errlen)
{
	const char *names[ROWS];
	struct kvr_json_value v[ROWS];
	int rc = 0;

	if (object->type == KVR_JSON_NONE || object->type == KVR_JSON_NULL)
		return 0;
	if (object->type != KVR_JSON_OBJECT) {
		snprintf(err, errlen, "hints: an object is expected");
		return -EINVAL;
	}
	for (unsigned int i = 0; i < ROWS; i++)
		names[i] = rows[i].name;
	kvr_json_members(object, names, ROWS, v);
	for (unsigned int i = 0; i < ROWS && rc == 0; i++)
		if (v[i].type != KVR_JSON_NONE && v[i].type != KVR_JSON_NULL)
			rc = take(h, i, &(struct arg){.v = v[i]}, err, errlen);
	return rc;
}

int gw_hints_override(struct gw_hints *h, const struct kvr_json_value *object, char *err,
		      size_t errlen)
{
	static const char *const names[] = {"overlap_score_weight",    "router_temperature",
					    "assume_kv_reuse",	       "track_prefill_tokens",
					    "shared_cache_multiplier", "overlap_score_credit",
					    "prefill_load_scale"};
	struct kvr_json_value v[7];

	if (object->type == KVR_JSON_NONE || object->type == KVR_JSON_NULL)
		return 0;
	if (object->type != KVR_JSON_OBJECT)
		return -EINVAL;
	kvr_json_members(object, names, 7, v);
	for (unsigned int i = 0; i < 7; i++) {
		bool flag;

		if (v[i].type == KVR_JSON_NONE || v[i].type == KVR_JSON_NULL)
			continue;
		if (kvr_json_bool(&v[i], &flag) == 0)
			h->override_value[i + 1] = flag;
		else if (kvr_json_f64(&v[i], &h->override_value[i + 1]) != 0) {
			snprintf(err, errlen, "%s: wrong type, or out of range", names[i]);
			return -EINVAL;
		}
		h->overrides |= 1u << (i + 1);
		h->any = true;
	}
	return 0;
}

int gw_hints_annotations(struct gw_hints *h, const struct kvr_json_value *array, char *err,
			 size_t errlen)
{
	struct kvr_json_iter it = kvr_json_begin(array);
	struct kvr_json_value name, v;

	if (array->type == KVR_JSON_NONE || array->type == KVR_JSON_NULL)
		return 0;
	if (array->type != KVR_JSON_ARRAY) {
		snprintf(err, errlen, "annotations: an array of strings is expected");
		return -EINVAL;
	}
	while (kvr_json_next(&it, &name, &v)) {
		if (v.type != KVR_JSON_STRING) {
			snprintf(err, errlen, "annotations: an array of strings is expected");
			return -EINVAL;
		}
		/* With its colon: the bare name is none of the reference's (spec 8.1). */
		if (v.len >= 20 && memcmp(v.p, "\"query_instance_id:", 19) == 0)
			h->query = h->token_ids = true;
	}
	return 0;
}

/* Names that a header has beside those of the table. */
static const char *alias(const char *name, size_t len)
{
	static const char *const names[][2] = {{"session", "session_id"},
					       {"session-action", "action"},
					       {"session-timeout", "timeout"},
					       {"lora", "lora_name"},
					       {"worker", "worker_id"},
					       {"prefill-worker", "prefill_worker_id"},
					       {"decode-worker", "decode_worker_id"},
					       {"allowed-workers", "allowed_worker_ids"},
					       {"query", "query_only"}};

	for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++)
		if (strlen(names[i][0]) == len && strncasecmp(names[i][0], name, len) == 0)
			return names[i][1];
	return NULL;
}

static bool same_name(const char *member, const char *header, size_t len)
{
	if (strlen(member) != len)
		return false;
	for (size_t i = 0; i < len; i++)
		if ((member[i] == '_' ? '-' : member[i]) !=
		    (header[i] | (header[i] == '-' ? 0 : 0x20)))
			return false;
	return true;
}

int gw_hints_header(struct gw_hints *h, const char *name, size_t name_len, const char *value,
		    size_t len, char *err, size_t errlen)
{
	static const char dynamo[] = "x-dynamo-session-id";
	const struct arg a = {{value, len, KVR_JSON_NONE}, true};
	const size_t skip = sizeof(PREFIX) - 1;
	const char *other;
	int rc;

	if (name_len == sizeof(dynamo) - 1 && strncasecmp(name, dynamo, name_len) == 0) {
		rc = take(h, R_SESSION, &a, err, errlen);
		return rc < 0 ? rc : 1;
	}
	if (name_len <= skip || strncasecmp(name, PREFIX, skip) != 0)
		return 0;
	other = alias(name + skip, name_len - skip);
	for (unsigned int i = 0; i < ROWS; i++) {
		if (other != NULL ? strcmp(other, rows[i].name) != 0
				  : !same_name(rows[i].name, name + skip, name_len - skip))
			continue;
		rc = take(h, i, &a, err, errlen);
		return rc < 0 ? rc : 1;
	}
	return 0;
}
