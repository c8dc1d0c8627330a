/* SPDX-License-Identifier: BSD-3-Clause */
/* Functions for the rules: numbers of the samples, and the sentence. */
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "doctor.h"
#include "sample.h"

static const json_t *find_member(const json_t *from, const char *name)
{
	const char *dot;

	while (from != NULL && (dot = strchr(name, '.')) != NULL) {
		char part[64];

		snprintf(part, sizeof(part), "%.*s", (int)(dot - name), name);
		from = json_object_get(from, part);
		name = dot + 1;
	}
	return json_object_get(from, name);
}

double doctor_get_number(const struct doctor_input *in, const char *name)
{
	return sample_to_number(find_member(in->now, name));
}

double doctor_get_growth(const struct doctor_input *in, const char *name)
{
	const json_t *before = find_member(in->before, name);
	const double by = doctor_get_number(in, name) - sample_to_number(before);

	return before != NULL && by > 0 ? by : 0;
}

const char *doctor_pick_word(double n, const char *one, const char *many)
{
	return nearbyint(n) == 1 ? one : many;
}

bool doctor_report(const struct doctor_input *in, const char *fmt, ...)
{
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(in->cause, in->len, fmt, ap);
	va_end(ap);
	return true;
}
