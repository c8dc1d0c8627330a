/* SPDX-License-Identifier: BSD-3-Clause */
#include "plan.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "kvr_rand.h"

#define ROW(name, lo, hi, chance, plain, kind, help)                                               \
	{#name, offsetof(struct sim_plan, name), lo, hi, chance, plain, SIM_##kind, help},
const struct sim_field sim_fields[] = {SIM_PLAN(ROW){.name = NULL}};

void sim_plan_draw(struct sim_plan *p, uint64_t seed, bool faults)
{
	*p = (struct sim_plan){.seed = seed};
	for (const struct sim_field *f = sim_fields; f->name != NULL; f++) {
		struct kvr_rand r;
		uint32_t v = f->plain;

		/* Each field has its own random sequence, so that a new field changes no other. */
		kvr_rand_init(&r, kvr_mix64(seed) ^ f->offset << 32);
		for (const char *c = f->name; *c != '\0'; c++)
			r.state = kvr_mix64(r.state ^ (uint8_t)*c);
		if (kvr_rand_below(&r, 100) < f->chance && (faults || f->kind != SIM_FAULT))
			v = f->lo + kvr_rand_below(&r, f->hi - f->lo + 1);
		*sim_field_at(p, f) = v;
	}
}

int sim_plan_set(struct sim_plan *p, const char *text)
{
	const char *eq = strchr(text, '=');
	char *end;

	if (eq == NULL)
		return -EINVAL;
	for (const struct sim_field *f = sim_fields; f->name != NULL; f++) {
		const unsigned long v = strtoul(eq + 1, &end, 10);

		if (strlen(f->name) != (size_t)(eq - text) ||
		    memcmp(f->name, text, (size_t)(eq - text)) != 0)
			continue;
		if (end == eq + 1 || *end != '\0' || v > 1000000 ||
		    (f->kind != SIM_FAULT && (v < f->lo || v > 100 * (unsigned long)f->hi)))
			return -EINVAL;
		*sim_field_at(p, f) = (uint32_t)v;
		return 0;
	}
	return -ENOENT;
}

int sim_plan_text(const struct sim_plan *p, char *buf, size_t len)
{
	struct sim_plan drawn;
	int n = snprintf(buf, len, "--seed %" PRIu64, p->seed);

	sim_plan_draw(&drawn, p->seed, true);
	for (const struct sim_field *f = sim_fields; f->name != NULL; f++) {
		const uint32_t v = *sim_field_at((struct sim_plan *)(uintptr_t)p, f);

		if (v != *sim_field_at(&drawn, f) && n >= 0 && (size_t)n < len)
			n += snprintf(buf + n, len - (size_t)n, " %s=%u", f->name, v);
	}
	return n;
}
