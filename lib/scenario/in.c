/* SPDX-License-Identifier: BSD-3-Clause */
#include "kvr_sc_line.h"

#include <ctype.h>
#include <inttypes.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MARK	 "\x01u64:" /* prefix of a large integer after parsing */
#define MARK_LEN 5u

bool kvr_sc_bad(struct kvr_sc_problem *p, const char *fmt, ...)
{
	va_list ap;

	if (p->text[0] != '\0')
		return false;
	va_start(ap, fmt);
	vsnprintf(p->text, sizeof(p->text), fmt, ap);
	va_end(ap);
	return false;
}

/* Length of the string literal at s including quotes; ends with the line. */
static size_t literal_end(const char *s, const char *end)
{
	const char *p = s + 1;

	while (p < end && *p != '"')
		p += *p == '\\' && p + 1 < end ? 2 : 1;
	return (size_t)((p < end ? p + 1 : end) - s);
}

static size_t number_end(const char *s, const char *end)
{
	const char *p = s;

	while (p < end && (isalnum((unsigned char)*p) || *p == '+' || *p == '-' || *p == '.'))
		p++;
	return (size_t)(p - s);
}

/* Whether an integer is above 2^63-1 and fits 64 bits. */
static bool is_large(const char *s, size_t n)
{
	static const char least[] = "9223372036854775808", most[] = "18446744073709551615";

	if (n < 19 || n > 20 || s[0] == '0')
		return false;
	for (size_t i = 0; i < n; i++)
		if (!isdigit((unsigned char)s[i]))
			return false;
	return n == 19 ? memcmp(s, least, 19) >= 0 : memcmp(s, most, 20) <= 0;
}

/* Copy the line, with large integers as marked strings. */
static char *wrap_numbers(const char *line, size_t len, size_t *out_len)
{
	const char *end = line + len, *s = line;
	char *out = malloc(len * 2 + 64), *o = out;

	while (out != NULL && s < end) {
		size_t n = 1;

		if (*s == '"')
			n = literal_end(s, end);
		else if (isdigit((unsigned char)*s) || *s == '-')
			n = number_end(s, end);
		if (is_large(s, n)) {
			o += sprintf(o, "\"\\u0001u64:");
			memcpy(o, s, n);
			o += n;
			*o++ = '"';
		} else {
			memcpy(o, s, n);
			o += n;
		}
		s += n;
	}
	*out_len = out == NULL ? 0 : (size_t)(o - out);
	return out;
}

static bool mentions_mark(const char *line, size_t len)
{
	for (size_t i = 0; i + 6 <= len; i++)
		if (memcmp(line + i, "\\u0001", 6) == 0)
			return true;
	return false;
}

json_t *kvr_sc_parse(const char *line, size_t len, struct kvr_sc_problem *p)
{
	json_error_t e;
	json_t *obj;
	char *text;
	size_t n;

	if (mentions_mark(line, len)) {
		kvr_sc_bad(p, "the control character \\u0001 is not accepted");
		return NULL;
	}
	text = wrap_numbers(line, len, &n);
	obj = text == NULL ? NULL : json_loadb(text, n, JSON_REJECT_DUPLICATES, &e);
	free(text);
	if (obj == NULL) {
		kvr_sc_bad(p, "malformed JSON: %s", text == NULL ? "no memory" : e.text);
		return NULL;
	}
	if (!json_is_object(obj)) {
		json_decref(obj);
		kvr_sc_bad(p, "not a JSON object");
		return NULL;
	}
	return obj;
}

/* ---- values ------------------------------------------------------------------------------ */

bool kvr_sc_is_large(const json_t *v)
{
	return json_is_string(v) && strncmp(json_string_value(v), MARK, MARK_LEN) == 0;
}

uint64_t kvr_sc_u64(const json_t *v)
{
	if (json_is_string(v))
		return strtoull(json_string_value(v) + MARK_LEN, NULL, 10);
	return (uint64_t)json_integer_value(v);
}

double kvr_sc_real(const json_t *v)
{
	return json_is_string(v) ? (double)kvr_sc_u64(v) : json_number_value(v);
}

bool kvr_sc_is_u64(const json_t *v, uint64_t most)
{
	if (json_is_integer(v))
		return json_integer_value(v) >= 0 && (uint64_t)json_integer_value(v) <= most;
	return kvr_sc_is_large(v) && kvr_sc_u64(v) <= most;
}

bool kvr_sc_is_real(const json_t *v)
{
	return kvr_sc_is_large(v) || (json_is_number(v) && isfinite(json_number_value(v)));
}

bool kvr_sc_is_text(const json_t *v)
{
	return json_is_string(v) && !kvr_sc_is_large(v);
}

const json_t *kvr_sc_get(const json_t *obj, const char *name)
{
	const json_t *v = json_object_get(obj, name);

	return json_is_null(v) ? NULL : v;
}

uint64_t kvr_sc_u64_or(const json_t *obj, const char *name, uint64_t def)
{
	const json_t *v = kvr_sc_get(obj, name);

	return v != NULL ? kvr_sc_u64(v) : def;
}

double kvr_sc_real_or(const json_t *obj, const char *name, double def)
{
	const json_t *v = kvr_sc_get(obj, name);

	return v != NULL ? kvr_sc_real(v) : def;
}

const char *kvr_sc_str_or(const json_t *obj, const char *name, const char *def)
{
	const json_t *v = kvr_sc_get(obj, name);

	return v != NULL ? json_string_value(v) : def;
}
