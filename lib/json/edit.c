/* SPDX-License-Identifier: BSD-3-Clause */
/* Edit members of an object, and quote strings as JSON. */
#include "json_pvt.h"

#include <errno.h>
#include <string.h>

struct out {
	char *p, *end;
	bool full;
};

static void put_bytes(struct out *o, const char *p, size_t n)
{
	if (o->full || (size_t)(o->end - o->p) < n) {
		o->full = true;
		return;
	}
	memcpy(o->p, p, n);
	o->p += n;
}

static void put_member(struct out *o, const struct kvr_json_edit *e)
{
	put_bytes(o, "\"", 1);
	put_bytes(o, e->name, strlen(e->name));
	put_bytes(o, "\":", 2);
	put_bytes(o, e->value, e->len);
}

size_t kvr_json_edit_bound(const struct kvr_json_value *object, const struct kvr_json_edit edits[],
			   unsigned int n)
{
	size_t bytes = object->len;

	for (unsigned int i = 0; i < n; i++)
		if (edits[i].value != NULL)
			bytes += strlen(edits[i].name) + edits[i].len + sizeof("\"\":,") - 1;
	return bytes;
}

/* Index of the edit of this name; n if there is none. */
static unsigned int find_edit(const struct kvr_json_value *name, const struct kvr_json_edit edits[],
			      const size_t lens[], unsigned int n)
{
	unsigned int i = 0;

	while (i < n && !kvr_json__text_equals(name, edits[i].name, lens[i]))
		i++;
	return i;
}

/* Find the last member of each edited name; NULL = not present. */
static void find_last_members(const struct kvr_json_value *object,
			      const struct kvr_json_edit edits[], const size_t lens[],
			      unsigned int n, const char *last[])
{
	struct kvr_json_iter it = kvr_json_begin(object);
	struct kvr_json_value name, value;

	while (kvr_json_next(&it, &name, &value)) {
		const unsigned int i = find_edit(&name, edits, lens, n);

		if (i < n)
			last[i] = name.p;
	}
}

/*
 * Copy the object with its edits. A member keeps the white space before its name. `from` is the
 * first byte that is not copied yet: after the opening bracket, or at the comma after the last
 * member. A deleted member is skipped from there to its end. The first member that is kept loses a
 * comma before it.
 */
static void copy_members(struct out *o, const struct kvr_json_value *object,
			 const struct kvr_json_edit edits[], const size_t lens[], unsigned int n,
			 const char *const last[])
{
	const char *from = object->p + 1, *end = object->p + object->len;
	struct kvr_json_iter it = kvr_json_begin(object);
	struct kvr_json_value name, value;
	bool any = false;

	put_bytes(o, "{", 1);
	while (kvr_json_next(&it, &name, &value)) {
		const unsigned int i = find_edit(&name, edits, lens, n);
		const char *behind = value.p + value.len;

		if (i < n && (edits[i].value == NULL || last[i] != name.p)) {
			from = behind;
			continue;
		}
		if (!any) { /* skip a comma, wherever it stands */
			const char *start = kvr_json__skip_blanks(from, name.p);

			if (start < name.p && *start == ',')
				from = start + 1;
		}
		put_bytes(o, from, (size_t)(value.p - from));
		if (i < n)
			put_bytes(o, edits[i].value, edits[i].len);
		else
			put_bytes(o, value.p, value.len);
		from = behind;
		any = true;
	}
	for (unsigned int i = 0; i < n; i++) {
		if (edits[i].value == NULL || last[i] != NULL)
			continue;
		if (any)
			put_bytes(o, ",", 1);
		put_member(o, &edits[i]);
		any = true;
	}
	put_bytes(o, from, (size_t)(end - from));
}

int64_t kvr_json_edit(const struct kvr_json_value *object, const struct kvr_json_edit edits[],
		      unsigned int n, char *out, size_t size)
{
	const char *last[KVR_JSON_MAX_NAMES] = {0};
	struct out o = {out, out + size, false};
	size_t lens[KVR_JSON_MAX_NAMES];

	if (object->type != KVR_JSON_OBJECT || n > KVR_JSON_MAX_NAMES)
		return -EINVAL;
	for (unsigned int i = 0; i < n; i++)
		lens[i] = strlen(edits[i].name);
	find_last_members(object, edits, lens, n, last);
	copy_members(&o, object, edits, lens, n, last);
	return o.full ? -ENOSPC : (int64_t)(o.p - out);
}

int64_t kvr_json_quote(const char *text, size_t len, char *buf, size_t size)
{
	static const char digit[] = "0123456789abcdef";
	const char *p = text, *end = text + len;
	struct out o = {buf, buf + size, false};

	put_bytes(&o, "\"", 1);
	while (p < end) {
		const char *q = kvr_json__find_special(p, end);
		unsigned int n;

		put_bytes(&o, p, (size_t)(q - p));
		p = q;
		if (p == end)
			break;
		if ((unsigned char)*p >= 0x80) {
			n = kvr_json__utf8_len(p, end);
			if (n == 0)
				return -EILSEQ;
			put_bytes(&o, p, n);
		} else if (*p == '"' || *p == '\\') {
			n = 1;
			put_bytes(&o, "\\", 1);
			put_bytes(&o, p, 1);
		} else {
			const char u[6] = {'\\', 'u', '0', '0', digit[*p >> 4], digit[*p & 15]};

			n = 1;
			put_bytes(&o, u, sizeof(u));
		}
		p += n;
	}
	put_bytes(&o, "\"", 2); /* including the terminator */
	return o.full ? -ENOSPC : (int64_t)(o.p - buf) - 1;
}
