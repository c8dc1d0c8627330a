/* SPDX-License-Identifier: BSD-3-Clause */
/* What rules read of a look, and how they say it. */
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "doctor.h"
#include "snap.h"

static const json_t *member(const json_t *from, const char *name)
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

double doctor_now(const struct doctor_look *l, const char *name)
{
	return snap_number(member(l->now, name));
}

double doctor_grown(const struct doctor_look *l, const char *name)
{
	const json_t *before = member(l->before, name);
	const double by = doctor_now(l, name) - snap_number(before);

	return before != NULL && by > 0 ? by : 0;
}

const char *doctor_word(double n, const char *one, const char *many)
{
	return nearbyint(n) == 1 ? one : many;
}

bool doctor_say(const struct doctor_look *l, const char *fmt, ...)
{
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(l->says, l->len, fmt, ap);
	va_end(ap);
	return true;
}
