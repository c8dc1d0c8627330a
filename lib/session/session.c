/* SPDX-License-Identifier: BSD-3-Clause */
/* Creation and destruction; one mapping holds all arrays. */
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

/* Take `bytes` at offset *at; with a NULL base only advance the offset. */
static void *take_part(char *base, size_t *at, size_t bytes)
{
	void *p = base == NULL ? NULL : base + *at;

	*at += (bytes + LINE - 1) / LINE * LINE;
	return p;
}

/* Lay out the arrays from `base` on. @return the total size. */
static size_t lay_out(struct kvr_session *table, char *base)
{
	size_t at = 0;

	table->index = take_part(base, &at, ((size_t)table->mask + 1) * sizeof(*table->index));
	table->entry = take_part(base, &at, (size_t)table->max * sizeof(*table->entry));
	table->link = take_part(base, &at, ((size_t)SLOTS + table->max) * sizeof(*table->link));
	table->queue =
		take_part(base, &at, ((size_t)table->queue_mask + 1) * sizeof(*table->queue));
	table->queued = take_part(base, &at, table->max * sizeof(*table->queued));
	return at;
}

/* Map zeroed memory and touch it: a packet lcore must not be the first to touch a page. */
static char *map_parts(struct kvr_session *table, size_t bytes)
{
	char *p;

	table->map_bytes = bytes + HUGE_BYTES;
	table->map = mmap(NULL, table->map_bytes, PROT_READ | PROT_WRITE,
			  MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	if (table->map == MAP_FAILED) {
		table->map = NULL;
		return NULL;
	}
	p = (char *)(((uintptr_t)table->map + HUGE_BYTES - 1) & ~(uintptr_t)(HUGE_BYTES - 1));
	(void)madvise(p, bytes, MADV_HUGEPAGE); /* only advice */
	memset(p, 0, bytes);
	return p;
}

static void size_all(struct kvr_session *table, uint32_t max_sessions)
{
	table->max = max_sessions;
	table->mask = (uint32_t)(pow2_from(2 * (uint64_t)max_sessions) - 1);
	table->queue_mask = (uint32_t)(pow2_from(max_sessions) - 1);
}

size_t kvr_session_bytes(uint32_t max_sessions)
{
	struct kvr_session table = {0};

	size_all(&table, max_sessions);
	return lay_out(&table, NULL) + sizeof(table);
}

struct kvr_session *kvr_session_create(uint32_t max_sessions, uint64_t seed, uint64_t now)
{
	struct kvr_session *table;
	char *base;

	if (max_sessions == 0 || max_sessions > KVR_SESSION_MAX)
		return kvr_null(EINVAL);
	table = aligned_alloc(LINE, sizeof(*table));
	if (table == NULL)
		return kvr_null(ENOMEM);
	memset(table, 0, sizeof(*table));
	size_all(table, max_sessions);
	base = map_parts(table, lay_out(table, NULL));
	if (base == NULL) {
		kvr_session_destroy(table);
		return kvr_null(ENOMEM);
	}
	lay_out(table, base);
	for (uint32_t i = 0; i < SLOTS + max_sessions; i++)
		table->link[i] = (struct link){i, i};
	table->free = NIL;
	table->seed = seed;
	table->tick = now >> TICK_SHIFT;
	return table;
}

void kvr_session_on_drop(struct kvr_session *table, void (*fn)(void *arg, uint32_t entry),
			 void *arg)
{
	table->on_drop = fn;
	table->drop_arg = arg;
}

void kvr_session_destroy(struct kvr_session *table)
{
	if (table == NULL)
		return;
	if (table->map != NULL)
		munmap(table->map, table->map_bytes);
	free(table);
}
