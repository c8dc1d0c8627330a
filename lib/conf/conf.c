/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Single values of an option table: parse, check, store, print. All error messages about allowed
 * values are made here, from the table.
 */
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
	for (const struct kvr_opt *opt = table; opt->name != NULL; opt++)
		if (strcmp(opt->name, name) == 0)
			return opt;
	return NULL;
}

/* Edit distance of short words, to suggest a correction of a misspelt key. */
static unsigned int edit_distance(const char *a, const char *b)
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

static void describe_unknown(const struct kvr_opt *table, const char *name, char *err,
			     size_t errlen)
{
	const char *best = NULL;
	unsigned int best_d = 3; /* suggest a key within two typing errors */
	size_t used;

	for (const struct kvr_opt *opt = table; opt->name != NULL; opt++) {
		const unsigned int d = edit_distance(name, opt->name);

		if (d < best_d && d < strlen(opt->name)) {
			best_d = d;
			best = opt->name;
		}
	}
	if (best != NULL) {
		snprintf(err, errlen, "unknown key, did you mean \"%s\"?", best);
		return;
	}
	used = (size_t)snprintf(err, errlen, "unknown key, allowed:");
	for (const struct kvr_opt *opt = table; opt->name != NULL && used < errlen; opt++) {
		if (opt->flags & KVR_OPT_F_DEPRECATED)
			continue;
		used += (size_t)snprintf(err + used, errlen - used, "%s %s",
					 err[used - 1] == ':' ? "" : ",", opt->name);
	}
}

static const char *range_kind(const struct kvr_opt *opt)
{
	return opt->type == KVR_OPT_F64 ? "a number" : "a whole number";
}

/* Describe the allowed values. */
static void describe_allowed(const struct kvr_opt *opt, const char *value, char *err, size_t errlen)
{
	size_t n = (size_t)snprintf(err, errlen, "got \"%.64s\", allowed: ", value);

	if (n >= errlen)
		return;
	err += n;
	errlen -= n;
	if (opt->type == KVR_OPT_BOOL) {
		snprintf(err, errlen, "true or false (also yes/no, on/off, 1/0)");
	} else if (opt->type == KVR_OPT_STRING) {
		snprintf(err, errlen, "at most %zu printable characters", opt->size - 1);
	} else if (opt->type == KVR_OPT_ENUM) {
		for (size_t i = 0; opt->choices[i] != NULL; i++) {
			n = (size_t)snprintf(err, errlen, "%s%s", i > 0 ? ", " : "",
					     opt->choices[i]);
			if (n >= errlen)
				return;
			err += n;
			errlen -= n;
		}
	} else {
		const bool limits = opt->min != 0 || opt->max != 0;
		char range[96] = "";

		if (limits)
			snprintf(range, sizeof(range), " %.15g to %.15g", opt->min, opt->max);
		else if (opt->type == KVR_OPT_U32)
			snprintf(range, sizeof(range), " 0 to %u", UINT32_MAX);
		snprintf(err, errlen, "%s%s%s%s%s%s", range_kind(opt), range,
			 opt->unit != NULL && opt->unit[0] != '\0' ? " " : "",
			 opt->unit != NULL ? opt->unit : "",
			 opt->type == KVR_OPT_U64 ? " (k, M, G allowed)" : "",
			 opt->flags & KVR_OPT_F_NONE ? " or none" : "");
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

/* Decimal or 0x; with @p suffix an optional power of 1024. */
static int parse_u64(const char *v, bool suffix, uint64_t *out)
{
	static const char powers[] = "kMG";
	const bool hex = v[0] == '0' && (v[1] == 'x' || v[1] == 'X');
	unsigned long long n;
	char *end;

	if (!isdigit((unsigned char)v[0])) /* strtoull() accepts leading blanks and signs */
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

static int set_integer(const struct kvr_opt *opt, void *field, const char *value)
{
	const bool none = (opt->flags & KVR_OPT_F_NONE) && strcasecmp(value, "none") == 0;
	const uint64_t top = opt->type == KVR_OPT_U32 ? UINT32_MAX : UINT64_MAX;
	uint64_t n = top;
	uint32_t n32;
	int rc;

	if (!none) {
		rc = parse_u64(value, opt->type == KVR_OPT_U64, &n);
		if (rc != 0)
			return rc;
		if (n > top || ((opt->flags & KVR_OPT_F_NONE) && n == top))
			return -ERANGE;
		if ((opt->min != 0 || opt->max != 0) &&
		    ((double)n < opt->min || (double)n > opt->max))
			return -ERANGE;
	}
	n32 = (uint32_t)n;
	if (opt->type == KVR_OPT_U32)
		memcpy(field, &n32, sizeof(n32));
	else
		memcpy(field, &n, sizeof(n));
	return 0;
}

static int set_f64(const struct kvr_opt *opt, void *field, const char *value)
{
	double d = NAN;
	char *end;

	if (!(opt->flags & KVR_OPT_F_NONE) || strcasecmp(value, "none") != 0) {
		/* Reject blanks, hexadecimal, "inf" and "nan", which strtod() accepts. */
		if (value[0] == '\0' || value[strspn(value, "+-.0123456789eE")] != '\0')
			return -EINVAL;
		d = strtod(value, &end);
		if (*end != '\0' || end == value)
			return -EINVAL;
		if (!isfinite(d))
			return -ERANGE;
		if ((opt->min != 0 || opt->max != 0) && (d < opt->min || d > opt->max))
			return -ERANGE;
	}
	memcpy(field, &d, sizeof(d));
	return 0;
}

static int set_string(const struct kvr_opt *opt, void *field, const char *value)
{
	const size_t n = strlen(value);

	if (n >= opt->size)
		return -ERANGE;
	for (size_t i = 0; i < n; i++)
		if (iscntrl((unsigned char)value[i]))
			return -EINVAL;
	memset(field, 0, opt->size);
	memcpy(field, value, n);
	return 0;
}

static int set_one(const struct kvr_opt *opt, void *obj, const char *value)
{
	void *field = (char *)obj + opt->offset;
	bool b;
	int rc;

	switch (opt->type) {
	case KVR_OPT_BOOL:
		rc = parse_bool(value, &b);
		if (rc == 0)
			memcpy(field, &b, sizeof(b));
		return rc;
	case KVR_OPT_U32:
	case KVR_OPT_U64:
		return set_integer(opt, field, value);
	case KVR_OPT_F64:
		return set_f64(opt, field, value);
	case KVR_OPT_ENUM:
		for (int i = 0; opt->choices[i] != NULL; i++) {
			if (strcasecmp(value, opt->choices[i]) == 0) {
				memcpy(field, &i, sizeof(i));
				return 0;
			}
		}
		return -EINVAL;
	case KVR_OPT_STRING:
		return set_string(opt, field, value);
	}
	return -EINVAL;
}

void kvr_conf_defaults(const struct kvr_opt *table, void *obj)
{
	for (const struct kvr_opt *opt = table; opt->name != NULL; opt++) {
		if ((opt->flags & KVR_OPT_F_DEPRECATED) && opt->def == NULL)
			continue; /* an alias without a field */
		if (opt->def == NULL || set_one(opt, obj, opt->def) != 0) {
			fprintf(stderr, "option %s: default \"%s\" does not parse\n", opt->name,
				opt->def != NULL ? opt->def : "(null)");
			abort();
		}
	}
}

/* Set the keys of the chosen preset. */
static void apply_preset(const struct kvr_opt *table, void *obj, const struct kvr_opt *preset)
{
	int choice;

	memcpy(&choice, (const char *)obj + preset->offset, sizeof(choice));
	for (const struct kvr_opt_set *s = preset->sets[choice]; s->key != NULL; s++) {
		const struct kvr_opt *opt = kvr_conf_find(table, s->key);

		if (opt == NULL || set_one(opt, obj, s->value) != 0) {
			fprintf(stderr, "option %s sets %s = %s, which does not parse\n",
				preset->name, s->key, s->value);
			abort();
		}
	}
}

int kvr_conf_set(const struct kvr_opt *table, void *obj, const char *name, const char *value,
		 char *err, size_t errlen)
{
	const struct kvr_opt *opt = kvr_conf_find(table, name);
	int rc;

	if (opt == NULL) {
		describe_unknown(table, name, err, errlen);
		return -ENOENT;
	}
	rc = set_one(opt, obj, value);
	if (rc != 0)
		describe_allowed(opt, value, err, errlen);
	else if (opt->sets != NULL)
		apply_preset(table, obj, opt);
	return rc;
}

/* Shortest text that parses to the same double. */
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

int kvr_conf_print(const struct kvr_opt *opt, const void *obj, char *buf, size_t len)
{
	const void *field = (const char *)obj + opt->offset;
	const bool none = opt->flags & KVR_OPT_F_NONE;
	uint64_t u64;
	uint32_t u32;
	double d;
	bool b;
	int i;

	switch (opt->type) {
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
		return snprintf(buf, len, "%s", opt->choices[i]);
	case KVR_OPT_STRING:
		return snprintf(buf, len, "%s", (const char *)field);
	}
	return -EINVAL;
}

void kvr_conf_dump(const struct kvr_opt *table, const void *obj, FILE *out)
{
	char value[KVR_CONF_MAX_VALUE + 1];

	for (const struct kvr_opt *opt = table; opt->name != NULL; opt++) {
		if (opt->flags & KVR_OPT_F_DEPRECATED)
			continue;
		kvr_conf_print(opt, obj, value, sizeof(value));
		fprintf(out, "%s = %s  # %s%s%s%s\n", opt->name, value,
			opt->unit != NULL ? opt->unit : "", opt->unit != NULL ? ", " : "",
			opt->help, opt->flags & KVR_OPT_F_LIST ? "; may be repeated" : "");
	}
}
