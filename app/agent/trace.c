/* SPDX-License-Identifier: BSD-3-Clause */
/* W3C trace context. */
#include "trace.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

/* 00-TRACE-PARENT-FLAGS, in lower case. */
static const char form[AGENT_TRACEPARENT] =
	"00-xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx-xxxxxxxxxxxxxxxx-xx";

static bool matches_form(const char *value)
{
	for (unsigned int i = 0; i < AGENT_TRACEPARENT - 1; i++) {
		const bool hex = (value[i] >= '0' && value[i] <= '9') ||
				 (value[i] >= 'a' && value[i] <= 'f');

		if (form[i] == 'x' ? !hex : value[i] != form[i])
			return false;
	}
	return true;
}

bool agent_trace_child(const char *value, size_t len, uint64_t span, char out[AGENT_TRACEPARENT])
{
	if (len != AGENT_TRACEPARENT - 1 || !matches_form(value))
		return false;
	snprintf(out, AGENT_TRACEPARENT, "%.36s%016" PRIx64 "%.3s", value, span, value + 52);
	return true;
}
