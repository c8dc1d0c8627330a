/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Names and values of hints. The table has a row for each hint of protocol.h that HTTP clients may
 * give, at the number of the hint, and from ROWS_OWN on the rows of this file: sessions, aliases,
 * groups, and what is no hint of the router. read_value() stores a value in struct gw_hints;
 * gw_hints_list() hands the values to lib/client.
 */
#include "hints.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>

#define PREFIX "x-kvroute-"

/* Where a value comes from: the text of a header has no type, so the row decides how it is read. */
struct arg {
	struct kvr_json_value v; /* of an object; of a header: its text as a number */
	bool header;
};

enum kind {
	K_NONE,
	K_TEXT,
	K_U32,
	K_I32,
	K_U64,
	K_F64,
	K_FLAG,
	K_U64S,
	K_TEXTS,
	K_PREFERRED,
	K_OWN
};

struct row {
	const char *name;   /* member of an object; "" or NULL: none */
	const char *header; /* name of the header after PREFIX, likewise */
	enum kind kind;
	size_t offset, size; /* of the member of struct gw_hints */
	uint8_t bit;	     /* in gw_hints.given */
	bool list;	     /* it adds to the list of lib/client */
	int (*take)(struct gw_hints *h, const struct arg *a); /* K_OWN */
};

int gw_hints_text(const struct kvr_json_value *v, char *buf, size_t size)
{
	const int64_t n = kvr_json_string(v, buf, size);

	return n < 0 || memchr(buf, '\0', (size_t)n) != NULL ? -EINVAL : (int)n;
}

static int read_text(const struct arg *a, char *buf, size_t size)
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
static struct kvr_json_value parse_number(const struct arg *a)
{
	struct kvr_json_value v = a->v;

	if (a->header && kvr_json_parse(a->v.p, a->v.len, &v, NULL) != 0)
		v = (struct kvr_json_value){0};
	return v;
}

static int read_u32(const struct arg *a, uint32_t *out)
{
	const struct kvr_json_value v = parse_number(a);
	uint64_t n;

	if (kvr_json_u64(&v, &n) != 0 || n > UINT32_MAX)
		return -EINVAL;
	*out = (uint32_t)n;
	return 0;
}

static int read_i32(const struct arg *a, int32_t *out)
{
	const struct kvr_json_value v = parse_number(a);
	int64_t n;

	if (kvr_json_i64(&v, &n) != 0 || n < INT32_MIN || n > INT32_MAX)
		return -EINVAL;
	*out = (int32_t)n;
	return 0;
}

static int read_f64(const struct arg *a, double *out)
{
	const struct kvr_json_value v = parse_number(a);

	return kvr_json_f64(&v, out) != 0 ? -EINVAL : 0;
}

static int read_flag(const struct arg *a, bool *out)
{
	struct kvr_json_value v = a->v;

	if (a->header && a->v.len == 1 && (a->v.p[0] == '0' || a->v.p[0] == '1')) {
		*out = a->v.p[0] == '1';
		return 0;
	}
	v = parse_number(a);
	return kvr_json_bool(&v, out) != 0 ? -EINVAL : 0;
}

/* Next part of a list in a header. @return false: no more. */
static bool take_part(struct arg *list, struct arg *part)
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

static int begin_elements(const struct arg *a, struct elements *e)
{
	e->list = *a;
	if (!a->header && a->v.type != KVR_JSON_ARRAY)
		return -EINVAL;
	if (!a->header)
		e->it = kvr_json_begin(&a->v);
	return 0;
}

static bool take_element(struct elements *e, struct arg *out)
{
	struct kvr_json_value name;

	if (e->list.header)
		return take_part(&e->list, out);
	out->header = false;
	return kvr_json_next(&e->it, &name, &out->v);
}

static int read_u64(const struct arg *a, uint64_t *out)
{
	const struct kvr_json_value v = parse_number(a);

	return kvr_json_u64(&v, out);
}

/* @p at: number of entries, then the entries. */
static int read_u64s(const struct arg *a, uint64_t *at)
{
	struct elements e;
	struct arg one;
	int rc = begin_elements(a, &e);

	*at = 0;
	while (rc == 0 && take_element(&e, &one)) {
		if (*at == GW_HINT_WORKERS)
			return -EINVAL;
		rc = read_u64(&one, &at[1 + (*at)++]);
	}
	return rc;
}

/* Likewise. */
static int read_texts(const struct arg *a, uint64_t *at)
{
	char(*text)[GW_HINT_NAME + 1] = (void *)(at + 1);
	struct elements e;
	struct arg one;
	int rc = begin_elements(a, &e);

	*at = 0;
	while (rc == 0 && take_element(&e, &one)) {
		if (*at == GW_HINT_TAINTS)
			return -EINVAL;
		rc = read_text(&one, text[(*at)++], sizeof(text[0]));
	}
	return rc;
}

/* Split taint=weight of a header. */
static bool split_weight(struct arg *taint, struct arg *weight)
{
	const char *eq = memrchr(taint->v.p, '=', taint->v.len);

	if (eq == NULL)
		return false;
	weight->v.p = eq + 1;
	weight->v.len = (size_t)(taint->v.p + taint->v.len - weight->v.p);
	taint->v.len = (size_t)(eq - taint->v.p);
	return true;
}

/* Likewise, of an object {taint: weight}, or in a header taint=weight. */
static int read_preferred(const struct arg *a, uint64_t *at)
{
	struct kvr_json_iter it = kvr_json_begin(&a->v);
	struct arg list = *a, one = {.header = a->header}, weight = one;
	struct gw_preferred *entry = (void *)(at + 1);
	int rc = 0;

	*at = 0;
	if (!a->header && a->v.type != KVR_JSON_OBJECT)
		return -EINVAL;
	while (rc == 0 &&
	       (a->header ? take_part(&list, &one) : kvr_json_next(&it, &one.v, &weight.v))) {
		if (*at == GW_HINT_TAINTS || (a->header && !split_weight(&one, &weight)))
			return -EINVAL;
		rc = read_f64(&weight, &entry[*at].weight);
		if (rc == 0)
			rc = read_text(&one, entry[*at].taint, sizeof(entry->taint));
		++*at;
	}
	return rc;
}

static int read_group(struct gw_hints *h, const struct arg *a)
{
	char err[1];

	if (a->header || a->v.type != KVR_JSON_OBJECT)
		return -EINVAL;
	return gw_hints_object(h, &a->v, err, sizeof(err));
}

static int read_extra_fields(struct gw_hints *h, const struct arg *a)
{
	struct elements e;
	struct arg one;
	int rc = begin_elements(a, &e);

	while (rc == 0 && take_element(&e, &one)) {
		if (!one.header && one.v.type != KVR_JSON_STRING)
			return -EINVAL;
		if (!one.header && kvr_json_equals(&one.v, "worker_id"))
			h->explain = true;
		else if (!one.header && kvr_json_equals(&one.v, "timing"))
			h->timing = true;
	}
	return rc;
}

static int read_annotations(struct gw_hints *h, const struct arg *a)
{
	char err[1];

	return a->header ? -EINVAL : gw_hints_annotations(h, &a->v, err, sizeof(err));
}

static int read_override(struct gw_hints *h, const struct arg *a)
{
	char err[1];

	return a->header ? -EINVAL : gw_hints_override(h, &a->v, err, sizeof(err));
}

/* ---- the table ---- */

#define ROWS_OWN 32u
#define ROWS	 64u

/* clang-format off */
#define AT(m)		    offsetof(struct gw_hints, m), sizeof(((struct gw_hints *)0)->m)
#define VALUE_U64(m)	    K_U64, AT(m)
#define VALUE_U32(m)	    K_U32, AT(m)
#define VALUE_I32(m)	    K_I32, AT(m)
#define VALUE_F64(m)	    K_F64, AT(m)
#define VALUE_TEXT(m)	    K_TEXT, AT(m)
#define VALUE_TEXTS(m)	    K_TEXTS, AT(n_##m)
#define VALUE_U64S(m)	    K_U64S, AT(n_##m)
#define VALUE_PREFERRED(m)  K_PREFERRED, AT(n_##m)
#define VALUE_BYTES(m)	    K_NONE, 0, 0
#define VALUE_RANKS(m)	    K_NONE, 0, 0
#define VALUE_OVERRIDE(m)   K_NONE, 0, 0
#define VALUE_SESSION(m)    K_NONE, 0, 0
#define VALUE_MM(m)	    K_NONE, 0, 0
#define VALUE_RANGES(m)	    K_NONE, 0, 0
#define VALUE_BODY(m)	    K_NONE, 0, 0
#define HINT(name)	    (KVR_HINT_##name & 0x3f)

#define HINT_ROW(name, type, in, format, least, most, entries, member, header, json, meaning) \
	[(type) & 0x3f] = {json, header, VALUE_##format(member), (type) & 0x3f, true, NULL},
#define ALIAS(row, json, header, hint, value) [row] = {json, header, value, HINT(hint), true, NULL}
#define OWN(row, json, header, value, list) [row] = {json, header, value, row, list, NULL}
#define GROUP(row, json, list, function) [row] = {json, "", K_OWN, 0, 0, row, list, function}

enum {
	R_SESSION = ROWS_OWN, R_ACTION, R_TIMEOUT, R_SALT, R_LATENCY, R_WORKER, R_EXPECTED, R_OSL, R_LEASE,
	R_QUERY, R_EXPLAIN, R_TIMING, R_CONSTRAINTS, R_CONTROL, R_AGENT, R_EXTRA, R_ANNOTATIONS, R_OVERRIDE,
};

static const struct row rows[ROWS] = {
	KVR_REQUEST_HINTS(HINT_ROW)
	ALIAS(R_SALT, "cache_salt", "", NAMESPACE, VALUE_TEXT(cache_namespace)),
	ALIAS(R_LATENCY, "latency_sensitivity", "", PRIORITY_JUMP, VALUE_F64(priority_jump)),
	ALIAS(R_WORKER, "worker_id", "worker", BACKEND, VALUE_U64(backend_worker)),
	OWN(R_SESSION, "session_id", "session", VALUE_TEXT(session), true),
	OWN(R_ACTION, "action", "session-action", VALUE_TEXT(action), true),
	OWN(R_TIMEOUT, "timeout", "session-timeout", VALUE_U32(timeout_s), true),
	OWN(R_EXPECTED, "expected_output_tokens", "", VALUE_U32(expected_output_tokens), false),
	OWN(R_OSL, "osl", "", VALUE_U32(expected_output_tokens), false),
	OWN(R_LEASE, "lease_ms", "", VALUE_U32(lease_ms), false),
#define FLAG(m) K_FLAG, AT(m)
	OWN(R_QUERY, "query_only", "query", FLAG(query), false),
	OWN(R_EXPLAIN, "explain", "", FLAG(explain), false),
	OWN(R_TIMING, "timing", "", FLAG(timing), false),
	GROUP(R_CONSTRAINTS, "routing_constraints", false, read_group),
	GROUP(R_CONTROL, "session_control", false, read_group),
	GROUP(R_AGENT, "agent_hints", false, read_group),
	GROUP(R_EXTRA, "extra_fields", false, read_extra_fields),
	GROUP(R_ANNOTATIONS, "annotations", false, read_annotations),
	GROUP(R_OVERRIDE, "router_config_override", true, read_override),
};
/* clang-format on */

static bool has_name(const struct row *row)
{
	return row->name != NULL && row->name[0] != '\0';
}

static int store_value(struct gw_hints *h, const struct row *row, const struct arg *a)
{
	void *at = (char *)h + row->offset;

	switch (row->kind) {
	case K_TEXT:
		return read_text(a, at, row->size);
	case K_U32:
		return read_u32(a, at);
	case K_I32:
		return read_i32(a, at);
	case K_U64:
		return read_u64(a, at);
	case K_F64:
		return read_f64(a, at);
	case K_FLAG:
		return read_flag(a, at);
	case K_U64S:
		return read_u64s(a, at);
	case K_TEXTS:
		return read_texts(a, at);
	case K_PREFERRED:
		return read_preferred(a, at);
	default:
		return row->take(h, a);
	}
}

static int read_value(struct gw_hints *h, const struct row *row, const struct arg *a, char *err,
		      size_t errlen)
{
	if (store_value(h, row, a) != 0) {
		snprintf(err, errlen, "%s: wrong type, or out of range", row->name);
		return -EINVAL;
	}
	h->given |= UINT64_C(1) << row->bit;
	h->any |= row->list;
	return 0;
}

int gw_hints_object(struct gw_hints *h, const struct kvr_json_value *object, char *err,
		    size_t errlen)
{
	const struct row *named[ROWS];
	const char *names[ROWS];
	struct kvr_json_value v[ROWS];
	unsigned int n = 0;
	int rc = 0;

	if (object->type == KVR_JSON_NONE || object->type == KVR_JSON_NULL)
		return 0;
	if (object->type != KVR_JSON_OBJECT) {
		snprintf(err, errlen, "hints: an object is expected");
		return -EINVAL;
	}
	for (unsigned int i = 0; i < ROWS; i++)
		if (has_name(&rows[i])) {
			names[n] = rows[i].name;
			named[n++] = &rows[i];
		}
	kvr_json_members(object, names, n, v);
	for (unsigned int i = 0; i < n && rc == 0; i++)
		if (v[i].type != KVR_JSON_NONE && v[i].type != KVR_JSON_NULL)
			rc = read_value(h, named[i], &(struct arg){.v = v[i]}, err, errlen);
	return rc;
}

int gw_hints_override(struct gw_hints *h, const struct kvr_json_value *object, char *err,
		      size_t errlen)
{
#define NAME(name, number, json, range) json,
	static const char *const names[] = {KVR_OVERRIDES(NAME)};
	enum { N = sizeof(names) / sizeof(names[0]) };
	struct kvr_json_value v[N];

	if (object->type == KVR_JSON_NONE || object->type == KVR_JSON_NULL)
		return 0;
	if (object->type != KVR_JSON_OBJECT)
		return -EINVAL;
	kvr_json_members(object, names, N, v);
	for (unsigned int i = 0; i < N; i++) {
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

/* A header has the name of the member, with '-' for '_'. */
static bool equals_name(const char *member, const char *header, size_t len)
{
	if (strlen(member) != len)
		return false;
	for (size_t i = 0; i < len; i++)
		if ((member[i] == '_' ? '-' : member[i]) !=
		    (header[i] | (header[i] == '-' ? 0 : 0x20)))
			return false;
	return true;
}

static bool is_header(const struct row *row, const char *name, size_t len)
{
	if (!has_name(row))
		return false;
	if (strlen(row->header) == len && strncasecmp(row->header, name, len) == 0)
		return true;
	return equals_name(row->name, name, len);
}

int gw_hints_header(struct gw_hints *h, const char *name, size_t name_len, const char *value,
		    size_t len, char *err, size_t errlen)
{
	static const char dynamo[] = "x-dynamo-session-id";
	const struct arg a = {{value, len, KVR_JSON_NONE}, true};
	const size_t skip = sizeof(PREFIX) - 1;
	int rc;

	if (name_len == sizeof(dynamo) - 1 && strncasecmp(name, dynamo, name_len) == 0) {
		rc = read_value(h, &rows[R_SESSION], &a, err, errlen);
		return rc < 0 ? rc : 1;
	}
	if (name_len <= skip || strncasecmp(name, PREFIX, skip) != 0)
		return 0;
	for (unsigned int i = 0; i < ROWS; i++) {
		if (!is_header(&rows[i], name + skip, name_len - skip))
			continue;
		rc = read_value(h, &rows[i], &a, err, errlen);
		return rc < 0 ? rc : 1;
	}
	return 0;
}

/* ---- the list of lib/client ---- */

static bool is_given(const struct gw_hints *h, unsigned int bit)
{
	return (h->given >> bit & 1) != 0;
}

bool gw_hints_pinned(const struct gw_hints *h)
{
	return is_given(h, HINT(BACKEND)) || is_given(h, HINT(PREFILL_WORKER)) ||
	       is_given(h, HINT(DECODE_WORKER));
}

static int list_session(const struct gw_hints *h, struct kvr_client_hints *list)
{
	enum kvr_client_session action = KVR_CLIENT_SESSION_USE;

	if (strcmp(h->action, "open") == 0)
		action = KVR_CLIENT_SESSION_OPEN;
	else if (strcmp(h->action, "close") == 0)
		action = KVR_CLIENT_SESSION_CLOSE;
	else if (h->action[0] != '\0')
		return -EINVAL;
	return kvr_client_hint_session(list, h->session, action,
				       action == KVR_CLIENT_SESSION_OPEN ? h->timeout_s : 0);
}

/* clang-format off */
#define LIST_NUMBER(name, m)	if (is_given(h, HINT(name))) kvr_client_hint_##m(list, h->m);
#define LIST_U64(name, m)	LIST_NUMBER(name, m)
#define LIST_U32(name, m)	LIST_NUMBER(name, m)
#define LIST_I32(name, m)	LIST_NUMBER(name, m)
#define LIST_F64(name, m)	LIST_NUMBER(name, m)
#define LIST_TEXT(name, m)	if (h->m[0] != '\0') kvr_client_hint_##m(list, h->m);
#define LIST_U64S(name, m)	if (is_given(h, HINT(name))) kvr_client_hint_##m(list, h->m, (uint32_t)h->n_##m);
#define LIST_TEXTS(name, m)	for (i = 0; i < h->n_##m; i++) kvr_client_hint_##m(list, h->m[i]);
#define LIST_PREFERRED(name, m)	for (i = 0; i < h->n_##m; i++) kvr_client_hint_##m(list, h->m[i].taint, h->m[i].weight);
#define LIST_BYTES(name, m)
#define LIST_RANKS(name, m)
#define LIST_OVERRIDE(name, m)
#define LIST_SESSION(name, m)
#define LIST_MM(name, m)
#define LIST_RANGES(name, m)
#define LIST_BODY(name, m)
#define LIST_HINT(name, type, in, format, least, most, entries, member, ...) LIST_##format(name, member)
/* clang-format on */

int gw_hints_list(const struct gw_hints *h, struct kvr_client_hints *list)
{
	uint64_t i;
	int rc = 0;

	KVR_REQUEST_HINTS(LIST_HINT)
	for (unsigned int k = 0; k < KVR_OVERRIDES_END; k++)
		if ((h->overrides >> k & 1) != 0)
			kvr_client_hint_override(list, (enum kvr_client_override)k,
						 h->override_value[k]);
	if (is_given(h, R_SESSION))
		rc = list_session(h, list);
	return rc != 0 ? rc : kvr_client_hints_error(list);
}
