/* SPDX-License-Identifier: BSD-3-Clause */
/* Iterate over validated values, find members, and convert single values. */
#include "json_pvt.h"

#include <endian.h>
#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#ifdef __SSE2__
#include <emmintrin.h>
#endif

struct kvr_json_iter kvr_json_begin(const struct kvr_json_value *v)
{
	struct kvr_json_iter it = {NULL, NULL, v->type == KVR_JSON_OBJECT};

	if (v->type != KVR_JSON_OBJECT && v->type != KVR_JSON_ARRAY)
		return it;
	it.end = v->p + v->len - 1; /* the closing bracket */
	it.p = kvr_json__skip_blanks(v->p + 1, it.end);
	return it;
}

/* Read the value at it->p and move past it. */
static void take_value(struct kvr_json_iter *it, struct kvr_json_value *v)
{
	v->p = it->p;
	it->p = kvr_json__skip_value(it->p, it->end, &v->type);
	v->len = (size_t)(it->p - v->p);
	it->p = kvr_json__skip_blanks(it->p, it->end);
}

bool kvr_json_next(struct kvr_json_iter *it, struct kvr_json_value *name,
		   struct kvr_json_value *value)
{
	*name = (struct kvr_json_value){0};
	*value = (struct kvr_json_value){0};
	if (it->p == it->end)
		return false;
	if (*it->p == ',')
		it->p = kvr_json__skip_blanks(it->p + 1, it->end);
	if (it->object) {
		take_value(it, name);
		it->p = kvr_json__skip_blanks(it->p + 1, it->end); /* the colon */
	}
	take_value(it, value);
	return true;
}

/*
 * Content of a name: in place, or in @p buf if it has escapes. @return its length; -1 if it does
 * not fit or is no valid text.
 */
static int64_t read_name(const struct kvr_json_value *name, char *buf, size_t size, const char **p)
{
	*p = name->p + 1;
	if (memchr(*p, '\\', name->len - 2) == NULL)
		return (int64_t)name->len - 2;
	*p = buf;
	return kvr_json_string(name, buf, size);
}

/*
 * Read each name of the object once, however many names are searched for: a body may have many
 * members.
 */
unsigned int kvr_json_members(const struct kvr_json_value *object, const char *const names[],
			      unsigned int n, struct kvr_json_value out[])
{
	size_t lens[KVR_JSON_MAX_NAMES];
	struct kvr_json_value name, value;
	unsigned int found = 0;
	struct kvr_json_iter it;
	const char *p;
	char buf[64];
	uint64_t lengths = 0; /* lengths of the names modulo 64, as bits */
	int64_t len;

	memset(out, 0, n * sizeof(out[0]));
	if (object->type != KVR_JSON_OBJECT || n > KVR_JSON_MAX_NAMES)
		return 0;
	for (unsigned int i = 0; i < n; i++) {
		lens[i] = strlen(names[i]);
		lengths |= UINT64_C(1) << lens[i] % 64;
	}
	it = kvr_json_begin(object);
	while (kvr_json_next(&it, &name, &value)) {
		len = read_name(&name, buf, sizeof(buf), &p);
		if (len >= 0 && (lengths >> len % 64 & 1) == 0)
			continue;
		for (unsigned int i = 0; i < n; i++) {
			if (len >= 0 ? (size_t)len != lens[i] || memcmp(p, names[i], lens[i]) != 0
				     : !kvr_json__text_equals(&name, names[i], lens[i]))
				continue;
			found += out[i].type == KVR_JSON_NONE;
			out[i] = value;
		}
	}
	return found;
}

static bool find_member(const struct kvr_json_value *object, const char *text, size_t n,
			struct kvr_json_value *out)
{
	struct kvr_json_iter it = kvr_json_begin(object);
	struct kvr_json_value name, value;
	bool found = false;

	while (kvr_json_next(&it, &name, &value)) {
		if (!kvr_json__text_equals(&name, text, n))
			continue;
		*out = value;
		found = true;
	}
	return found;
}

static bool find_element(const struct kvr_json_value *array, const char *text, size_t n,
			 struct kvr_json_value *out)
{
	const struct kvr_json_value number = {text, n, KVR_JSON_NUMBER};
	struct kvr_json_iter it = kvr_json_begin(array);
	struct kvr_json_value name;
	uint64_t place;

	if (kvr_json_u64(&number, &place) < 0)
		return false;
	while (kvr_json_next(&it, &name, out))
		if (place-- == 0)
			return true;
	return false;
}

bool kvr_json_get(const struct kvr_json_value *root, const char *path, struct kvr_json_value *out)
{
	struct kvr_json_value at = *root, next = {0};

	while (*path != 0) {
		const size_t n = strcspn(path, ".");
		const bool found = at.type == KVR_JSON_OBJECT  ? find_member(&at, path, n, &next)
				   : at.type == KVR_JSON_ARRAY ? find_element(&at, path, n, &next)
							       : false;

		if (!found) {
			*out = (struct kvr_json_value){0};
			return false;
		}
		at = next;
		path += path[n] == '.' ? n + 1 : n;
	}
	*out = at;
	return true;
}

static unsigned int parse_hex4(const char *p)
{
	unsigned int v = 0;

	for (int i = 0; i < 4; i++)
		v = v << 4 | (unsigned int)(p[i] <= '9' ? p[i] - '0' : (p[i] | 0x20) - 'a' + 10);
	return v;
}

static unsigned int put_utf8(uint32_t c, char out[4])
{
	if (c < 0x80) {
		out[0] = (char)c;
		return 1;
	}
	if (c < 0x800) {
		out[0] = (char)(0xc0 | c >> 6);
		out[1] = (char)(0x80 | (c & 0x3f));
		return 2;
	}
	if (c < 0x10000) {
		out[0] = (char)(0xe0 | c >> 12);
		out[1] = (char)(0x80 | (c >> 6 & 0x3f));
		out[2] = (char)(0x80 | (c & 0x3f));
		return 3;
	}
	out[0] = (char)(0xf0 | c >> 18);
	out[1] = (char)(0x80 | (c >> 12 & 0x3f));
	out[2] = (char)(0x80 | (c >> 6 & 0x3f));
	out[3] = (char)(0x80 | (c & 0x3f));
	return 4;
}

/* Decode the escape at *p to UTF-8 and move past it. @return its bytes, or -EILSEQ. */
static int decode_escape(const char **p, const char *end, char out[4])
{
	static const char from[] = "\"\\/bfnrt", to[] = "\"\\/\b\f\n\r\t";
	const char *s = *p + 1;
	uint32_t c, low;

	if (*s != 'u') {
		out[0] = to[strchr(from, *s) - from];
		*p = s + 1;
		return 1;
	}
	c = parse_hex4(s + 1);
	*p = s + 5;
	if (c >= 0xd800 && c < 0xe000) {
		if (c >= 0xdc00 || end - *p < 6 || (*p)[0] != '\\' || (*p)[1] != 'u')
			return -EILSEQ;
		low = parse_hex4(*p + 2);
		if (low < 0xdc00 || low >= 0xe000)
			return -EILSEQ;
		c = 0x10000 + ((c - 0xd800) << 10) + (low - 0xdc00);
		*p += 6;
	}
	return (int)put_utf8(c, out);
}

/*
 * Decode one byte or one escape of a string and move @p p past it. @return the number of bytes, or
 * -EILSEQ.
 */
static int decode_next(const char **p, const char *end, char out[4])
{
	if (**p == '\\')
		return decode_escape(p, end, out);
	out[0] = *(*p)++;
	return 1;
}

bool kvr_json__text_equals(const struct kvr_json_value *v, const char *text, size_t n)
{
	const char *p, *end;
	char c[4];

	if (v->type != KVR_JSON_STRING) /* a missing value has no text */
		return false;
	p = v->p + 1;
	end = v->p + v->len - 1;
	if (memchr(p, '\\', (size_t)(end - p)) == NULL)
		return (size_t)(end - p) == n && memcmp(p, text, n) == 0;
	while (p < end) {
		const int k = decode_next(&p, end, c);

		if (k < 0 || (size_t)k > n || memcmp(c, text, (size_t)k) != 0)
			return false;
		text += k;
		n -= (size_t)k;
	}
	return n == 0;
}

bool kvr_json_equals(const struct kvr_json_value *v, const char *text)
{
	return kvr_json__text_equals(v, text, strlen(text));
}

int64_t kvr_json_string(const struct kvr_json_value *v, char *buf, size_t size)
{
	const char *p, *end;
	size_t n = 0;
	char c[4];

	if (v->type != KVR_JSON_STRING)
		return -EINVAL;
	p = v->p + 1;
	end = v->p + v->len - 1;
	while (p < end) {
		const int k = decode_next(&p, end, c);

		if (k < 0)
			return k;
		if (n + (size_t)k >= size)
			return -ENOSPC;
		memcpy(buf + n, c, (size_t)k);
		n += (size_t)k;
	}
	if (n >= size)
		return -ENOSPC;
	buf[n] = 0;
	return (int64_t)n;
}

int kvr_json_bool(const struct kvr_json_value *v, bool *out)
{
	if (v->type != KVR_JSON_BOOL)
		return -EINVAL;
	*out = *v->p == 't';
	return 0;
}

/* Parse the digits after the sign. */
static int parse_whole(const char *p, const char *end, uint64_t *out)
{
	uint64_t n = 0;

	if (p == end)
		return -EINVAL;
	for (const char *q = p; q < end; q++)
		if (*q < '0' || *q > '9')
			return -EINVAL;
	for (; p < end; p++)
		if (__builtin_mul_overflow(n, 10u, &n) ||
		    __builtin_add_overflow(n, (uint64_t)(*p - '0'), &n))
			return -ERANGE;
	*out = n;
	return 0;
}

int kvr_json_u64(const struct kvr_json_value *v, uint64_t *out)
{
	int rc;

	if (v->type != KVR_JSON_NUMBER)
		return -EINVAL;
	if (*v->p != '-')
		return parse_whole(v->p, v->p + v->len, out);
	rc = parse_whole(v->p + 1, v->p + v->len, out);
	return rc < 0 ? rc : *out == 0 ? 0 : -ERANGE;
}

int kvr_json_i64(const struct kvr_json_value *v, int64_t *out)
{
	const bool minus = v->type == KVR_JSON_NUMBER && *v->p == '-';
	uint64_t n;
	int rc;

	if (v->type != KVR_JSON_NUMBER)
		return -EINVAL;
	rc = parse_whole(v->p + minus, v->p + v->len, &n);
	if (rc < 0)
		return rc;
	if (n > (uint64_t)INT64_MAX + minus)
		return -ERANGE;
	*out = minus ? (int64_t)(0 - n) : (int64_t)n;
	return 0;
}

int kvr_json_f64(const struct kvr_json_value *v, double *out)
{
	char text[64];
	double d;

	if (v->type != KVR_JSON_NUMBER)
		return -EINVAL;
	if (v->len >= sizeof(text))
		return -ERANGE;
	memcpy(text, v->p, v->len);
	text[v->len] = 0;
	d = strtod(text, NULL);
	if (!isfinite(d))
		return -ERANGE;
	*out = d;
	return 0;
}

/* Value of the n digits (1 to 8) before @p end. Reads nothing before @p from. */
static uint32_t short_number(const char *from, const char *end, unsigned int n)
{
	const uint64_t nil = UINT64_C(0x3030303030303030), pairs = UINT64_C(0x000000ff000000ff);
	char first[8];
	uint64_t x;

	if (end - from < 8)
		end = (char *)memcpy(first + 8 - n, end - n, n) + n;
	memcpy(&x, end - 8, sizeof(x));
	x = le64toh(x) ^ nil;
	x &= UINT64_MAX << (64 -
			    8 * n); /* clear the other bytes; the last digit is the highest byte */
	x = x * 10 + (x >> 8);
	return (uint32_t)(((x & pairs) * (100 + (UINT64_C(1000000) << 32)) +
			   ((x >> 16) & pairs) * (1 + (UINT64_C(10000) << 32))) >>
			  32);
}

#ifdef __SSE2__
#define WINDOW 64

/*
 * Find the commas and digits among 64 bytes. @param gap in and out: the byte before them is a
 * comma. @return false if there is anything but digits, commas, and a space after a comma.
 */
static bool commas_of(const char *p, uint64_t *gap, uint64_t *commas, uint64_t *digits)
{
	const __m128i nil = _mm_set1_epi8('0'), nine = _mm_set1_epi8(9);
	const __m128i point = _mm_set1_epi8(','), space = _mm_set1_epi8(' ');
	uint64_t d = 0, c = 0, s = 0;

	for (unsigned int i = 0; i < WINDOW; i += 16) {
		const __m128i v = _mm_loadu_si128((const __m128i *)(const void *)(p + i));
		const __m128i n = _mm_sub_epi8(v, nil);
		const __m128i digit = _mm_cmpeq_epi8(_mm_min_epu8(n, nine), n);

		d |= (uint64_t)(unsigned int)_mm_movemask_epi8(digit) << i;
		c |= (uint64_t)(unsigned int)_mm_movemask_epi8(_mm_cmpeq_epi8(v, point)) << i;
		s |= (uint64_t)(unsigned int)_mm_movemask_epi8(_mm_cmpeq_epi8(v, space)) << i;
	}
	*gap |= c << 1;
	if ((d | c | s) != UINT64_MAX || (s & ~*gap) != 0)
		return false;
	*gap = c >> 63;
	*commas = c;
	*digits = d;
	return true;
}

/*
 * Count the numbers that end in whole windows from *start on, and move *start past the last of
 * them. @return -1 if one has more than 8 digits, or if there is anything else.
 */
static int64_t count_short(const char **start, const char *end)
{
	uint64_t gap = 1, commas, digits;
	int64_t n = 0;

	for (const char *p = *start; end - p >= WINDOW; p += WINDOW) {
		uint64_t nine;

		if (!commas_of(p, &gap, &commas, &digits) || commas == 0)
			return -1;
		nine = digits & digits >> 1;
		nine &= nine >> 2;
		nine &= nine >> 4; /* bits at which eight digits in a row begin */
		*start += **start == ' ';
		if ((nine & digits >> 8) != 0 || p + __builtin_ctzll(commas) - *start > 8)
			return -1;
		n += __builtin_popcountll(commas);
		*start = p + WINDOW - __builtin_clzll(commas);
	}
	return n;
}
#endif

/*
 * Read numbers of at most 8 digits separated by commas: token ids. @return -1 if there is anything
 * else.
 */
static int64_t short_numbers(const struct kvr_json_value *v, uint32_t out[], size_t cap)
{
	const char *start = v->p + 1, *end = v->p + v->len - 1;
	int64_t n = 0;

#ifdef __SSE2__
	uint64_t gap = 1, commas, digits;

	if (out == NULL && (n = count_short(&start, end)) < 0)
		return -1;
	for (const char *p = start; out != NULL && end - p >= WINDOW; p += WINDOW) {
		if (!commas_of(p, &gap, &commas, &digits))
			return -1;
		for (; commas != 0; commas &= commas - 1, n++) {
			const char *comma = p + __builtin_ctzll(commas);

			start += *start == ' ';
			if (comma - start > 8)
				return -1;
			if (out != NULL && (size_t)n < cap)
				out[n] = short_number(v->p, comma, (unsigned int)(comma - start));
			start = comma + 1;
		}
	}
#endif
	for (start = kvr_json__skip_blanks(start, end); start < end; n++) {
		const char *from = start;
		uint32_t t = 0;

		for (; start < end && *start >= '0' && *start <= '9' && start - from < 9; start++)
			t = t * 10 + (uint32_t)(*start - '0');
		if (start == from || start - from == 9 || (start < end && *start != ','))
			return -1;
		if (out != NULL && (size_t)n < cap)
			out[n] = t;
		if (start < end)
			start = kvr_json__skip_blanks(start + 1, end);
	}
	return n;
}

int64_t kvr_json_u32s(const struct kvr_json_value *v, uint32_t out[], size_t cap)
{
	struct kvr_json_iter it = kvr_json_begin(v);
	struct kvr_json_value name, value;
	int64_t n = 0;

	if (v->type != KVR_JSON_ARRAY)
		return -EINVAL;
	n = short_numbers(v, out, cap);
	if (n >= 0)
		return n;
	n = 0;
	while (kvr_json_next(&it, &name, &value)) {
		uint64_t t;
		const int rc = kvr_json_u64(&value, &t);

		if (rc < 0)
			return rc;
		if (t > UINT32_MAX)
			return -ERANGE;
		if (out != NULL && (size_t)n < cap)
			out[n] = (uint32_t)t;
		n++;
	}
	return n;
}
