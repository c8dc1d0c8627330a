/* SPDX-License-Identifier: BSD-3-Clause */
/* Create and destroy: one mapping holds all parts. */
#include "session_pvt.h"

#include "kvr_errno.h"
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#define LINE	   64u
#define HUGE_BYTES (UINT64_C(2) << 20)

static uint64_t pow2_from(uint64_t n)
{
	uint64_t p = 16;

	while (p < n)
		p *= 2;
	return p;
}

/* A part of `bytes` bytes; with a base NULL only its place is counted. */
static void *part(char *base, size_t *at, size_t bytes)
{
	void *p = base == NULL ? NULL : base + *at;

	*at += (bytes + LINE - 1) / LINE * LINE;
	return p;
}

/* Lay the parts out from `base` on. @return bytes of all. */
static size_t lay_out(struct kvr_session *s, char *base)
{
	size_t at = 0;

	s->index = part(base, &at, ((size_t)s->mask + 1) * sizeof(*s->index));
	s->entry = part(base, &at, (size_t)s->max * sizeof(*s->entry));
	s->link = part(base, &at, ((size_t)SLOTS + s->max) * sizeof(*s->link));
	s->queue = part(base, &at, ((size_t)s->queue_mask + 1) * sizeof(*s->queue));
	s->queued = part(base, &at, s->max * sizeof(*s->queued));
	return at;
}

/* Zeroed memory that is there: a packet lcore must not be the first to touch a page. */
static char *map_parts(struct kvr_session *s, size_t bytes)
{
	char *p;

	s->map_bytes = bytes + HUGE_BYTES;
	s->map = mmap(NULL, s->map_bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1,
		      0);
	if (s->map == MAP_FAILED) {
		s->map = NULL;
		return NULL;
	}
	p = (char *)(((uintptr_t)s->map + HUGE_BYTES - 1) & ~(uintptr_t)(HUGE_BYTES - 1));
	(void)madvise(p, bytes, MADV_HUGEPAGE); /* only a wish */
	memset(p, 0, bytes);
	return p;
}

static void size_all(struct kvr_session *s, uint32_t max_sessions)
{
	s->max = max_sessions;
	s->mask = (uint32_t)(pow2_from(2 * (uint64_t)max_sessions) - 1);
	s->queue_mask = (uint32_t)(pow2_from(max_sessions) - 1);
}

size_t kvr_session_bytes(uint32_t max_sessions)
{
	struct kvr_session s = {0};

	size_all(&s, max_sessions);
	return lay_out(&s, NULL) + sizeof(s);
}

struct kvr_session *kvr_session_create(uint32_t max_sessions, uint64_t seed, uint64_t now)
{
	struct kvr_session *s;
	char *base;

	if (max_sessions == 0 || max_sessions > KVR_SESSION_MAX)
		return kvr_null(EINVAL);
	s = aligned_alloc(LINE, sizeof(*s));
	if (s == NULL)
		return kvr_null(ENOMEM);
	memset(s, 0, sizeof(*s));
	size_all(s, max_sessions);
	base = map_parts(s, lay_out(s, NULL));
	if (base == NULL) {
		kvr_session_destroy(s);
		return kvr_null(ENOMEM);
	}
	lay_out(s, base);
	for (uint32_t i = 0; i < SLOTS + max_sessions; i++)
		s->link[i] = (struct link){i, i};
	s->free = NIL;
	s->seed = seed;
	s->tick = now >> TICK_SHIFT;
	return s;
}

void kvr_session_on_drop(struct kvr_session *s, void (*fn)(void *arg, uint32_t entry), void *arg)
{
	s->on_drop = fn;
	s->drop_arg = arg;
}

void kvr_session_destroy(struct kvr_session *s)
{
	if (s == NULL)
		return;
	if (s->map != NULL)
		munmap(s->map, s->map_bytes);
	free(s);
}
