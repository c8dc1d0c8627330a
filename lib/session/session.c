/* SPDX-License-Identifier: BSD-3-Clause */
/* Create and destroy. */
#include "session_pvt.h"

#include "kvr_errno.h"
#include <stdlib.h>
#include <string.h>

struct kvr_session *kvr_session_create(uint32_t max_sessions, uint64_t seed, uint64_t now)
{
	struct kvr_session *s;
	uint64_t slots = 16;

	if (max_sessions == 0 || max_sessions > UINT32_MAX / 4)
		return kvr_null(EINVAL);
	while (slots < 2 * (uint64_t)max_sessions)
		slots *= 2;
	s = calloc(1, sizeof(*s));
	if (s == NULL)
		return kvr_null(ENOMEM);
	s->entry = aligned_alloc(64, (size_t)max_sessions * sizeof(*s->entry));
	s->index = calloc(slots, sizeof(*s->index));
	if (s->entry == NULL || s->index == NULL) {
		kvr_session_destroy(s);
		return kvr_null(ENOMEM);
	}
	s->mask = (uint32_t)(slots - 1);
	s->max = max_sessions;
	s->free = NIL;
	s->seed = seed;
	s->tick = now / TICK;
	memset(s->at, 0xFF, sizeof(s->at));
	return s;
}

void kvr_session_destroy(struct kvr_session *s)
{
	if (s == NULL)
		return;
	free(s->entry);
	free(s->index);
	free(s);
}
