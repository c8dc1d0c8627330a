/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Strict validation: one loop over the tokens. The stack of open objects and arrays is a bit mask,
 * one bit per level, so that no input exhausts the program's stack.
 */
#include "json_pvt.h"

#include <errno.h>
#include <string.h>

#ifdef __SSE2__
#include <emmintrin.h>
#endif

const char *kvr_json__find_special(const char *p, const char *end)
{
#ifdef __SSE2__
	const __m128i quote = _mm_set1_epi8('"'), slash = _mm_set1_epi8('\\');
	const __m128i space = _mm_set1_epi8(0x20);

	for (; end - p >= 16; p += 16) {
		const __m128i v = _mm_loadu_si128((const __m128i *)(const void *)p);
		/* bytes >= 0x80 are negative, hence also below the space */
		const __m128i stop = _mm_or_si128(
			_mm_or_si128(_mm_cmpeq_epi8(v, quote), _mm_cmpeq_epi8(v, slash)),
			_mm_cmplt_epi8(v, space));
		const unsigned int mask = (unsigned int)_mm_movemask_epi8(stop);

		if (mask != 0)
			return p + __builtin_ctz(mask);
	}
#endif
	while (p < end && *p != '"' && *p != '\\' && (unsigned char)*p >= 0x20 &&
	       (unsigned char)*p < 0x80)
		p++;
	return p;
}

const char *kvr_json__find_bracket(const char *p, const char *end)
{
#ifdef __SSE2__
	const __m128i quote = _mm_set1_epi8('"'), bit = _mm_set1_epi8(0x20);
	const __m128i open = _mm_set1_epi8('{'), shut = _mm_set1_epi8('}');

	for (; end - p >= 16; p += 16) {
		const __m128i v = _mm_loadu_si128((const __m128i *)(const void *)p);
		const __m128i any = _mm_or_si128(v, bit); /* maps [ to { and ] to } */
		const __m128i stop = _mm_or_si128(
			_mm_cmpeq_epi8(v, quote),
			_mm_or_si128(_mm_cmpeq_epi8(any, open), _mm_cmpeq_epi8(any, shut)));
		const unsigned int mask = (unsigned int)_mm_movemask_epi8(stop);

		if (mask != 0)
			return p + __builtin_ctz(mask);
	}
#endif
	while (p < end && *p != '"' && (*p | 0x20) != '{' && (*p | 0x20) != '}')
		p++;
	return p;
}

unsigned int kvr_json__utf8_len(const char *p, const char *end)
{
	const unsigned char *s = (const unsigned char *)p;
	const size_t left = (size_t)(end - p);
	unsigned char low = 0x80, high = 0xbf; /* range of the second byte */
	unsigned int n;

	if (s[0] < 0x80)
		return 1;
	if (s[0] < 0xc2 || s[0] > 0xf4)
		return 0;
	n = s[0] < 0xe0 ? 2 : s[0] < 0xf0 ? 3 : 4;
	if (left < n)
		return 0;
	if (s[0] == 0xe0)
		low = 0xa0; /* reject overlong forms */
	else if (s[0] == 0xed)
		high = 0x9f; /* reject surrogates */
	else if (s[0] == 0xf0)
		low = 0x90;
	else if (s[0] == 0xf4)
		high = 0x8f; /* reject code points above U+10FFFF */
	if (s[1] < low || s[1] > high)
		return 0;
	for (unsigned int i = 2; i < n; i++)
		if ((s[i] & 0xc0) != 0x80)
			return 0;
	return n;
}

static bool is_hex4(const char *p)
{
	for (int i = 0; i < 4; i++)
		if (!((p[i] >= '0' && p[i] <= '9') || (p[i] >= 'a' && p[i] <= 'f') ||
		      (p[i] >= 'A' && p[i] <= 'F')))
			return false;
	return true;
}

/* *p is after a backslash; moves it after the escape. */
static int check_escape(const char **p, const char *end)
{
	if (*p == end)
		return -EBADMSG;
	if (**p == 'u') {
		if (end - *p < 5 || !is_hex4(*p + 1))
			return -EBADMSG;
		*p += 5;
		return 0;
	}
	if (**p == 0 || strchr("\"\\/bfnrt", **p) == NULL)
		return -EBADMSG;
	*p += 1;
	return 0;
}

/* *p is at a quote; moves it after the closing quote. */
static int check_string(const char **p, const char *end)
{
	const char *s = *p + 1;
	int rc = -EBADMSG;

	for (;;) {
		s = kvr_json__find_special(s, end);
		if (s == end || (unsigned char)*s < 0x20)
			break;
		if (*s == '"') {
			*p = s + 1;
			return 0;
		}
		if (*s == '\\') {
			s++;
			if (check_escape(&s, end) < 0)
				break;
		} else {
			const unsigned int n = kvr_json__utf8_len(s, end);

			if (n == 0) {
				rc = -EILSEQ;
				break;
			}
			s += n;
		}
	}
	*p = s;
	return rc;
}

static const char *skip_digits(const char *p, const char *end)
{
	while (p < end && *p >= '0' && *p <= '9')
		p++;
	return p;
}

static int check_number(const char **p, const char *end)
{
	const char *s = *p, *from;

	if (*s == '-')
		s++;
	from = s;
	s = skip_digits(s, end);
	if (s == from || (*from == '0' && s - from > 1))
		goto bad;
	if (s < end && *s == '.') {
		from = ++s;
		s = skip_digits(s, end);
		if (s == from)
			goto bad;
	}
	if (s < end && (*s == 'e' || *s == 'E')) {
		s++;
		if (s < end && (*s == '+' || *s == '-'))
			s++;
		from = s;
		s = skip_digits(s, end);
		if (s == from)
			goto bad;
	}
	*p = s;
	return 0;
bad:
	*p = s;
	return -EBADMSG;
}

static int check_word(const char **p, const char *end, const char *w)
{
	for (; *w != 0; w++, (*p)++)
		if (*p == end || **p != *w)
			return -EBADMSG;
	return 0;
}

static int check_scalar(const char **p, const char *end)
{
	switch (**p) {
	case '"':
		return check_string(p, end);
	case 't':
		return check_word(p, end, "true");
	case 'f':
		return check_word(p, end, "false");
	case 'n':
		return check_word(p, end, "null");
	default:
		return check_number(p, end);
	}
}

static enum kvr_json_type type_of(char c)
{
	switch (c) {
	case '"':
		return KVR_JSON_STRING;
	case 't':
	case 'f':
		return KVR_JSON_BOOL;
	case 'n':
		return KVR_JSON_NULL;
	case '[':
		return KVR_JSON_ARRAY;
	case '{':
		return KVR_JSON_OBJECT;
	default:
		return KVR_JSON_NUMBER;
	}
}

/* Check the name of a member and the colon. */
static int check_name(const char **p, const char *end)
{
	int rc;

	if (*p == end || **p != '"')
		return -EBADMSG;
	rc = check_string(p, end);
	if (rc < 0)
		return rc;
	*p = kvr_json__skip_blanks(*p, end);
	if (*p == end || **p != ':')
		return -EBADMSG;
	*p = kvr_json__skip_blanks(*p + 1, end);
	return 0;
}

/*
 * Fast path for arrays of token ids. @p p is after a comma of an array. @return the start of a
 * value such that everything before it is valid: blocks of 16 bytes that contain only digits,
 * commas and at most one space after a comma, without a missing number and without a leading zero.
 */
static const char *whole_numbers(const char *p, const char *end)
{
#ifdef __SSE2__
	const __m128i nil = _mm_set1_epi8('0'), nine = _mm_set1_epi8(9);
	const __m128i point = _mm_set1_epi8(','), space = _mm_set1_epi8(' ');
	/* Bit 0 describes the byte before: a comma; a comma or space; a leading zero. */
	unsigned int comma = 1, gap = 1, zero = 0;
	const char *from = p;

	for (; end - p >= 16; p += 16) {
		const __m128i v = _mm_loadu_si128((const __m128i *)(const void *)p);
		const __m128i n = _mm_sub_epi8(v, nil);
		const unsigned int d =
			(unsigned int)_mm_movemask_epi8(_mm_cmpeq_epi8(_mm_min_epu8(n, nine), n));
		const unsigned int c = (unsigned int)_mm_movemask_epi8(_mm_cmpeq_epi8(v, point));
		const unsigned int s = (unsigned int)_mm_movemask_epi8(_mm_cmpeq_epi8(v, space));
		unsigned int z = (unsigned int)_mm_movemask_epi8(_mm_cmpeq_epi8(v, nil));

		comma |= c << 1;
		gap |= (c | s) << 1;
		z &= gap;
		if ((d | c | s) != 0xffff || (s & ~comma) != 0 || (c & gap) != 0 ||
		    ((z << 1 | zero) & d) != 0)
			break;
		comma >>= 16;
		gap >>= 16;
		zero = z >> 15;
	}
	while (p > from && p[-1] >= '0' && p[-1] <= '9') /* the number may continue */
		p--;
#endif
	(void)end;
	return p;
}

/*
 * After a value: close the objects and arrays that end here. @return 1 if another value follows, 0
 * if everything is closed.
 */
static int close_and_go_on(const char **p, const char *end, uint64_t kinds, unsigned int *depth)
{
	while (*depth > 0) {
		const bool object = kinds >> (*depth - 1) & 1;

		*p = kvr_json__skip_blanks(*p, end);
		if (*p == end)
			return -EBADMSG;
		if (**p == (object ? '}' : ']')) {
			(*p)++;
			(*depth)--;
			continue;
		}
		if (**p != ',')
			return -EBADMSG;
		*p = kvr_json__skip_blanks(*p + 1, end);
		if (object) {
			const int rc = check_name(p, end);

			if (rc < 0)
				return rc;
		} else if (*p < end && **p >= '0' && **p <= '9') {
			*p = kvr_json__skip_blanks(whole_numbers(*p, end), end);
		}
		return 1;
	}
	return 0;
}

static int check_text(const char **p, const char *end)
{
	unsigned int depth = 0;
	uint64_t kinds = 0; /* bit d is set if level d is an object */
	int rc = 1;

	while (rc > 0) {
		if (*p == end)
			return -EBADMSG;
		if (**p == '{' || **p == '[') {
			const bool object = **p == '{';

			if (depth == KVR_JSON_MAX_DEPTH)
				return -E2BIG;
			kinds = (kinds & ~(UINT64_C(1) << depth)) | (uint64_t)object << depth;
			depth++;
			*p = kvr_json__skip_blanks(*p + 1, end);
			if (*p == end)
				return -EBADMSG;
			if (**p != (object ? '}' : ']')) {
				rc = object ? check_name(p, end) : 0;
				if (rc < 0)
					return rc;
				rc = 1;
				continue;
			}
		} else {
			rc = check_scalar(p, end);
			if (rc < 0)
				return rc;
		}
		rc = close_and_go_on(p, end, kinds, &depth);
	}
	return rc;
}

int kvr_json_parse(const char *text, size_t len, struct kvr_json_value *root, size_t *at)
{
	const char *end = text + len, *p = kvr_json__skip_blanks(text, end), *from = p;
	int rc = check_text(&p, end);

	*root = (struct kvr_json_value){0};
	if (rc == 0) {
		const char *rest = kvr_json__skip_blanks(p, end);

		*root = (struct kvr_json_value){from, (size_t)(p - from), type_of(*from)};
		if (rest != end) {
			*root = (struct kvr_json_value){0};
			p = rest;
			rc = -EBADMSG;
		}
	}
	if (at != NULL)
		*at = (size_t)(p - text);
	return rc;
}

/* After the closing quote of the string at p. */
static const char *skip_string(const char *p, const char *end)
{
	p++;
	while (p < end) {
		p = kvr_json__find_special(p, end);
		if (p == end)
			break;
		if (*p == '"')
			return p + 1;
		p += *p == '\\' ? 2 : 1;
	}
	return end;
}

const char *kvr_json__skip_value(const char *p, const char *end, enum kvr_json_type *type)
{
	unsigned int depth = 0;

	*type = type_of(*p);
	if (*type < KVR_JSON_STRING) {
		while (p < end && *p != ',' && *p != ']' && *p != '}' && *p != ' ' && *p != '\n' &&
		       *p != '\r' && *p != '\t')
			p++;
		return p;
	}
	while (p < end) {
		if (*p == '"') {
			p = skip_string(p, end);
		} else {
			depth += *p == '{' || *p == '[';
			depth -= *p == '}' || *p == ']';
			p++;
		}
		if (depth == 0)
			return p;
		p = kvr_json__find_bracket(p, end);
	}
	return end;
}
