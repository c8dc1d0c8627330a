/* SPDX-License-Identifier: BSD-3-Clause */
/* Reports of a run: reason of a failure, log, digest. */
#include "sim.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>

void sim_fail(struct sim *s, const char *fmt, ...)
{
	va_list ap;

	if (s->failed)
		return;
	s->failed = true;
	va_start(ap, fmt);
	vsnprintf(s->why, sizeof(s->why), fmt, ap);
	va_end(ap);
	sim_log(s, "FAILED: %s", s->why);
}

void sim_log(struct sim *s, const char *fmt, ...)
{
	va_list ap;

	if (!s->verbose)
		return;
	printf("%4" PRIu64 ".%06" PRIu64 " ", s->now_ns / SIM_S, s->now_ns % SIM_S / 1000);
	va_start(ap, fmt);
	vprintf(fmt, ap);
	va_end(ap);
	putchar('\n');
}

void sim_digest(struct sim *s, uint64_t a, uint64_t b)
{
	s->digest = kvr_mix64(s->digest ^ a) + b * UINT64_C(0x9E3779B97F4A7C15);
}

static uint64_t bugs[SIM_N_BUGS];

void sim_bug(enum sim_bug bug)
{
	bugs[bug]++;
}

uint32_t sim_print_bugs(void)
{
#define SIM_BUG_TEXT(name, text) text,
	static const char *const texts[] = {SIM_BUGS(SIM_BUG_TEXT)};
	uint32_t never = 0;

	for (uint32_t i = 0; i < SIM_N_BUGS; i++) {
		printf("%-36s %10" PRIu64 " times\n", texts[i], bugs[i]);
		never += bugs[i] == 0;
	}
	return never;
}
