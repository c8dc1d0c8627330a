/* SPDX-License-Identifier: BSD-3-Clause */
#include "policy.h"

static uint32_t least_loaded(struct load_policy *p, const uint32_t in_flight[], uint32_t n)
{
	uint32_t best = 0, ties = 1;

	for (uint32_t i = 1; i < n; i++) {
		if (in_flight[i] < in_flight[best]) {
			best = i;
			ties = 1;
		} else if (in_flight[i] == in_flight[best] &&
			   kvr_rand_below(&p->rand, ++ties) == 0) {
			best = i;
		}
	}
	return best;
}

uint32_t load_policy_pick(struct load_policy *p, const uint32_t in_flight[], uint32_t n)
{
	switch (p->kind) {
	case LOAD_ROUND_ROBIN:
		p->next = p->next + 1 < n ? p->next + 1 : 0;
		return p->next;
	case LOAD_RANDOM:
		return kvr_rand_below(&p->rand, n);
	case LOAD_LEAST_LOADED:
		return least_loaded(p, in_flight, n);
	case LOAD_KV:
		break;
	}
	return LOAD_UNPINNED;
}
