/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Fuzz target: a text that may be JSON. An accepted text is walked, its strings and numbers are
 * read, and members are set and removed: the result must be JSON again, with the requested members.
 */
#include "fuzz.h"

#include "kvr_json.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define REQUIRE(x)                                                                                 \
	do {                                                                                       \
		if (!(x))                                                                          \
			abort();                                                                   \
	} while (0)

static void use_value(const struct kvr_json_value *v)
{
	struct kvr_json_value alone;
	char buf[64];
	uint64_t u;
	int64_t i;
	double d;

	REQUIRE(v->type != KVR_JSON_NONE && v->len > 0);
	REQUIRE(kvr_json_parse(v->p, v->len, &alone, NULL) == 0);
	REQUIRE(alone.len == v->len && alone.type == v->type);
	if (v->type == KVR_JSON_STRING)
		REQUIRE(kvr_json_string(v, buf, sizeof(buf)) < (int64_t)sizeof(buf));
	if (kvr_json_u64(v, &u) == 0 && u <= INT64_MAX)
		REQUIRE(kvr_json_i64(v, &i) == 0 && i == (int64_t)u);
	kvr_json_f64(v, &d);
	kvr_json_u32s(v, NULL, 0);
}

static void edit_object(const struct kvr_json_value *object)
{
	static const struct kvr_json_edit edits[] = {{"a", "[7]", 3}, {"b", NULL, 0}};
	static const char *const names[] = {"a", "b"};
	const size_t size = kvr_json_edit_bound(object, edits, 2);
	struct kvr_json_value v, out[2];
	char *buf = malloc(size);
	int64_t n;

	REQUIRE(buf != NULL);
	n = kvr_json_edit(object, edits, 2, buf, size);
	REQUIRE(n >= 2 && kvr_json_parse(buf, (size_t)n, &v, NULL) == 0);
	REQUIRE(kvr_json_members(&v, names, 2, out) == 1);
	REQUIRE(out[0].len == 3 && memcmp(out[0].p, "[7]", 3) == 0);
	free(buf);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct kvr_json_value root, name, value;
	struct kvr_json_iter it;
	size_t at;
	int rc = kvr_json_parse((const char *)data, size, &root, &at);

	REQUIRE(at <= size && (rc == 0 || rc == -EBADMSG || rc == -EILSEQ || rc == -E2BIG));
	if (rc < 0)
		return 0;
	use_value(&root);
	it = kvr_json_begin(&root);
	while (kvr_json_next(&it, &name, &value)) {
		use_value(&value);
		if (root.type == KVR_JSON_OBJECT)
			use_value(&name);
	}
	kvr_json_get(&root, "a.0.b", &value);
	if (root.type == KVR_JSON_OBJECT)
		edit_object(&root);
	return 0;
}
