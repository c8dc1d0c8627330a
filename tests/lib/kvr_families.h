/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef KVR_FAMILIES_H
#define KVR_FAMILIES_H

/** @file Check of a list of metric families (kvr_metrics.h) against its table of counters. */

#include <ctype.h>
#include <string.h>

#include "kvr_metrics.h"

/* A sum of other counters may be without a family. */
static inline bool families_is_sum(const struct kvr_stats_def *def, unsigned int counter)
{
	for (const struct kvr_equation *e = def->equations; e != NULL && e->left != NULL; e++)
		if (e->left[0] == counter && e->left[1] == KVR_TERMS_END)
			return true;
	return false;
}

static inline bool families_is_word(const char *text)
{
	return text[0] != '\0' &&
	       text[strspn(text, "abcdefghijklmnopqrstuvwxyz0123456789_")] == '\0';
}

/* One family: names, types; count the uses of each counter in @p uses. */
static inline const char *families_check_one(const struct kvr_stats_def *def,
					     const struct kvr_family *f, unsigned int n,
					     unsigned int uses[])
{
	const uint32_t kind = def->counters[f->samples->counter].flags;
	const size_t len = strlen(f->name), tail = strlen("_total");
	const bool total = len > tail && strcmp(f->name + len - tail, "_total") == 0;

	if (!families_is_word(f->name) || strncmp(f->name, "kvr_", 4) != 0 ||
	    total != (kind == KVR_COUNTER_F_COUNT))
		return f->name;
	for (const struct kvr_sample *s = f->samples; s->counter != KVR_TERMS_END; s++) {
		if (s->counter >= n || def->counters[s->counter].flags != kind ||
		    (s->value != NULL) != (f->label != NULL) ||
		    (s->value != NULL && !families_is_word(s->value)))
			return f->name;
		uses[s->counter]++;
		for (const struct kvr_sample *other = f->samples; other != s; other++)
			if (s->value == NULL || strcmp(s->value, other->value) == 0)
				return f->name;
	}
	return NULL;
}

/** @return NULL; or the name of a family that is not well-formed, or of a counter that is not in
 * exactly one family. */
static inline const char *families_check(const struct kvr_stats_def *def,
					 const struct kvr_family *families)
{
	const unsigned int n = kvr_stats_count(def);
	unsigned int uses[KVR_STATS_MAX] = {0};

	for (const struct kvr_family *f = families; f->name != NULL; f++) {
		const char *wrong = families_check_one(def, f, n, uses);

		if (wrong != NULL)
			return wrong;
		for (const struct kvr_family *other = families; other != f; other++)
			if (strcmp(other->name, f->name) == 0)
				return f->name;
	}
	for (unsigned int i = 0; i < n; i++)
		if (uses[i] > 1 || (uses[i] == 0 && !families_is_sum(def, i)))
			return def->counters[i].name;
	return NULL;
}

#endif
