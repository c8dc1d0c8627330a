/* SPDX-License-Identifier: BSD-3-Clause */
#include "kvr_conf.h"

#include <ctype.h>
#include <errno.h>
#include <math.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include <rte_common.h>

const struct kvr_opt *kvr_conf_find(const struct kvr_opt *table, const char *name)
{
	for (const struct kvr_opt *o = table; o->name != NULL; o++)
		if (strcmp(o->name, name) == 0)
			return o;
	return NULL;
}

/* Edit distance of short words, to guess what a misspelt key was meant to be. */
static unsigned int distance(const char *a, const char *b)
{
	unsigned int row[64];
	const size_t n = strlen(b);

	if (n >= RTE_DIM(row))
		return UINT32_MAX;
	for (size_t j = 0; j <= n; j++)
		row[j] = (unsigned int)j;
	for (size_t i = 0; a[i] != '\0'; i++) {
		unsigned int diagonal = row[0];

		row[0] = (unsigned int)i + 1;
		for (size_t j = 0; j < n; j++) {
			const unsigned int swap = diagonal + (a[i] != b[j]);
			const unsigned int edit = RTE_MIN(row[j], row[j + 1]) + 1;

			diagonal = row[j + 1];
			row[j + 1] = RTE_MIN(swap, edit);
		}
	}
	return row[n];
}

static void say_unknown(const struct kvr_opt *table, const char *name, char *err, size_t errlen)
{
	const char *best = NULL;
	unsigned int best_d = 3; /* two typing errors are a guess, three are another word */
	size_t used;

	for (const struct kvr_opt *o = table; o->name != NULL; o++) {
		const unsigned int d = distance(name, o->name);

		if (d < best_d && d < strlen(o->name)) {
			best_d = d;
			best = o->name;
		}
	}
	if (best != NULL) {
		snprintf(err, errlen, "unknown key, did you mean \"%s\"?", best);
		return;
	}
	used = (size_t)snprintf(err, errlen, "unknown key, allowed:");
	for (const struct kvr_opt *o = table; o->name != NULL && used < errlen; o++) {
		if (o->flags & KVR_OPT_F_DEPRECATED)
			continue;
		used += (size_t)snprintf(err + used, errlen - used, "%s %s",
					 err[used - 1] == ':' ? "" : ",", o->name);
	}
}

static const char *range_kind(const struct kvr_opt *o)
{
	return o->type == KVR_OPT_F64 ? "a number" : "a whole number";
}

/* What is allowed, in words. */
static void say_allowed(const struct kvr_opt *o, const char *value, char *err, size_t errlen)
{
	size_t n = (size_t)snprintf(err, errlen, "got \"%.64s\", allowed: ", value);

	if (n >= errlen)
		return;
	err += n;
	errlen -= n;
	if (o->type == KVR_OPT_BOOL) {
		snprintf(err, errlen, "true or false (also yes/no, on/off, 1/0)");
	} else if (o->type == KVR_OPT_STRING) {
		snprintf(err, errlen, "at most %zu printable characters", o->size - 1);
	} else if (o->type == KVR_OPT_ENUM) {
		for (size_t i = 0; o->choices[i] != NULL; i++) {
			n = (size_t)snprintf(err, errlen, "%s%s", i > 0 ? ", " : "", o->choices[i]);
			if (n >= errlen)
				return;
			err += n;
			errlen -= n;
		}
	} else {
		const bool limits = o->min != 0 || o->max != 0;
		char range[96] = "";

		if (limits)
			snprintf(range, sizeof(range), " %.15g to %.15g", o->min, o->max);
		else if (o->type == KVR_OPT_U32)
			snprintf(range, sizeof(range), " 0 to %u", UINT32_MAX);
		snprintf(err, errlen, "%s%s%s%s%s%s", range_kind(o), range,
			 o->unit != NULL && o->unit[0] != '\0' ? " " : "",
			 o->unit != NULL ? o->unit : "",
			 o->type == KVR_OPT_U64 ? " (k, M, G allowed)" : "",
			 o->flags & KVR_OPT_F_NONE ? " or none" : "");
	}
}

static int parse_bool(const char *v, bool *out)
{
	static const char *const yes[] = {"true", "yes", "on", "1"};
	static const char *const no[] = {"false", "no", "off", "0"};

	for (size_t i = 0; i < RTE_DIM(yes); i++) {
		if (strcasecmp(v, yes[i]) == 0 || strcasecmp(v, no[i]) == 0) {
			*out = strcasecmp(v, yes[i]) == 0;
			return 0;
		}
	}
	return -EINVAL;
}

/* Decimal or 0x, with an optional power of 1024 when @suffix. */
static int parse_u64(const char *v, bool suffix, uint64_t *out)
{
	static const char powers[] = "kMG";
	const bool hex = v[0] == '0' && (v[1] == 'x' || v[1] == 'X');
	unsigned long long n;
	char *end;

	if (!isdigit((unsigned char)v[0])) /* strtoull would take blanks and signs */
		return -EINVAL;
	errno = 0;
	n = strtoull(v, &end, hex ? 16 : 10);
	if (errno == ERANGE)
		return -ERANGE;
	if (suffix && !hex && *end != '\0' && end[1] == '\0') {
		const char *p = strchr(powers, *end == 'K' ? 'k' : *end);
		const unsigned int shift = p == NULL ? 0 : 10u * (unsigned int)(p - powers + 1);

		if (p == NULL)
			return -EINVAL;
		if (n > UINT64_MAX >> shift)
			return -ERANGE;
		n <<= shift;
		end++;
	}
	if (*end != '\0')
		return -EINVAL;
	*out = n;
	return 0;
}

static int set_integer(const struct kvr_opt *o, void *field, const char *value)
{
	const bool none = (o->flags & KVR_OPT_F_NONE) && strcasecmp(value, "none") == 0;
	const uint64_t top = o->type == KVR_OPT_U32 ? UINT32_MAX : UINT64_MAX;
	uint64_t n = top;
	uint32_t n32;
	int rc;

	if (!none) {
		rc = parse_u64(value, o->type == KVR_OPT_U64, &n);
		if (rc != 0)
			return rc;
		if (n > top || ((o->flags & KVR_OPT_F_NONE) && n == top))
			return -ERANGE;
		if ((o->min != 0 || o->max != 0) && ((double)n < o->min || (double)n > o->max))
			return -ERANGE;
	}
	n32 = (uint32_t)n;
	if (o->type == KVR_OPT_U32)
		memcpy(field, &n32, sizeof(n32));
	else
		memcpy(field, &n, sizeof(n));
	return 0;
}

static int set_f64(const struct kvr_opt *o, void *field, const char *value)
{
	double d = NAN;
	char *end;

	if (!(o->flags & KVR_OPT_F_NONE) || strcasecmp(value, "none") != 0) {
		/* No blanks, no hexadecimal, no "inf" and "nan", whatever strtod would take. */
		if (value[0] == '\0' || value[strspn(value, "+-.0123456789eE")] != '\0')
			return -EINVAL;
		d = strtod(value, &end);
		if (*end != '\0' || end == value)
			return -EINVAL;
		if (!isfinite(d))
			return -ERANGE;
		if ((o->min != 0 || o->max != 0) && (d < o->min || d > o->max))
			return -ERANGE;
	}
	memcpy(field, &d, sizeof(d));
	return 0;
}

static int set_string(const struct kvr_opt *o, void *field, const char *value)
{
	const size_t n = strlen(value);

	if (n >= o->size)
		return -ERANGE;
	for (size_t i = 0; i < n; i++)
		if (iscntrl((unsigned char)value[i]))
			return -EINVAL;
	memset(field, 0, o->size);
	memcpy(field, value, n);
	return 0;
}

static int set_one(const struct kvr_opt *o, void *obj, const char *value)
{
	void *field = (char *)obj + o->offset;
	bool b;
	int rc;

	switch (o->type) {
	case KVR_OPT_BOOL:
		rc = parse_bool(value, &b);
		if (rc == 0)
			memcpy(field, &b, sizeof(b));
		return rc;
	case KVR_OPT_U32:
	case KVR_OPT_U64:
		return set_integer(o, field, value);
	case KVR_OPT_F64:
		return set_f64(o, field, value);
	case KVR_OPT_ENUM:
		for (int i = 0; o->choices[i] != NULL; i++) {
			if (strcasecmp(value, o->choices[i]) == 0) {
				memcpy(field, &i, sizeof(i));
				return 0;
			}
		}
		return -EINVAL;
	case KVR_OPT_STRING:
		return set_string(o, field, value);
	}
	return -EINVAL;
}

void kvr_conf_defaults(const struct kvr_opt *table, void *obj)
{
	for (const struct kvr_opt *o = table; o->name != NULL; o++) {
		if ((o->flags & KVR_OPT_F_DEPRECATED) && o->def == NULL)
			continue; /* an alias that has no field of its own */
		if (o->def == NULL || set_one(o, obj, o->def) != 0) {
			fprintf(stderr, "option %s: default \"%s\" does not parse\n", o->name,
				o->def != NULL ? o->def : "(null)");
			abort();
		}
	}
}

/* What the choice of a preset sets. */
static void set_all(const struct kvr_opt *table, void *obj, const struct kvr_opt *preset)
{
	int choice;

	memcpy(&choice, (const char *)obj + preset->offset, sizeof(choice));
	for (const struct kvr_opt_set *s = preset->sets[choice]; s->key != NULL; s++) {
		const struct kvr_opt *o = kvr_conf_find(table, s->key);

		if (o == NULL || set_one(o, obj, s->value) != 0) {
			fprintf(stderr, "option %s sets %s = %s, which does not parse\n",
				preset->name, s->key, s->value);
			abort();
		}
	}
}

int kvr_conf_set(const struct kvr_opt *table, void *obj, const char *name, const char *value,
		 char *err, size_t errlen)
{
	const struct kvr_opt *o = kvr_conf_find(table, name);
	int rc;

	if (o == NULL) {
		say_unknown(table, name, err, errlen);
		return -ENOENT;
	}
	rc = set_one(o, obj, value);
	if (rc != 0)
		say_allowed(o, value, err, errlen);
	else if (o->sets != NULL)
		set_all(table, obj, o);
	return rc;
}

/* The shortest text that reads back as the same double. */
static int print_f64(double d, char *buf, size_t len)
{
	for (int digits = 15; digits < 17; digits++) {
		char text[40];

		snprintf(text, sizeof(text), "%.*g", digits, d);
		if (strtod(text, NULL) == d)
			return snprintf(buf, len, "%s", text);
	}
	return snprintf(buf, len, "%.17g", d);
}

int kvr_conf_print(const struct kvr_opt *o, const void *obj, char *buf, size_t len)
{
	const void *field = (const char *)obj + o->offset;
	const bool none = o->flags & KVR_OPT_F_NONE;
	uint64_t u64;
	uint32_t u32;
	double d;
	bool b;
	int i;

	switch (o->type) {
	case KVR_OPT_BOOL:
		memcpy(&b, field, sizeof(b));
		return snprintf(buf, len, "%s", b ? "true" : "false");
	case KVR_OPT_U32:
		memcpy(&u32, field, sizeof(u32));
		if (none && u32 == UINT32_MAX)
			return snprintf(buf, len, "none");
		return snprintf(buf, len, "%u", u32);
	case KVR_OPT_U64:
		memcpy(&u64, field, sizeof(u64));
		if (none && u64 == UINT64_MAX)
			return snprintf(buf, len, "none");
		return snprintf(buf, len, "%llu", (unsigned long long)u64);
	case KVR_OPT_F64:
		memcpy(&d, field, sizeof(d));
		return isnan(d) ? snprintf(buf, len, "none") : print_f64(d, buf, len);
	case KVR_OPT_ENUM:
		memcpy(&i, field, sizeof(i));
		return snprintf(buf, len, "%s", o->choices[i]);
	case KVR_OPT_STRING:
		return snprintf(buf, len, "%s", (const char *)field);
	}
	return -EINVAL;
}

void kvr_conf_dump(const struct kvr_opt *table, const void *obj, FILE *out)
{
	char value[KVR_CONF_MAX_VALUE + 1];

	for (const struct kvr_opt *o = table; o->name != NULL; o++) {
		if (o->flags & KVR_OPT_F_DEPRECATED)
			continue;
		kvr_conf_print(o, obj, value, sizeof(value));
		fprintf(out, "%s = %s  # %s%s%s%s\n", o->name, value,
			o->unit != NULL ? o->unit : "", o->unit != NULL ? ", " : "", o->help,
			o->flags & KVR_OPT_F_LIST ? "; may be repeated" : "");
	}
}
