/* SPDX-License-Identifier: BSD-3-Clause */
/* Names of one block, linked in a circle from the oldest to the newest. */
#include "kvmap_pvt.h"

#include <errno.h>
#include <stdlib.h>

#define NAMES_MOST 32u /* per block */

static uint32_t first_slot(const struct kvr_kvmap *m, uint64_t sh)
{
	return (uint32_t)((sh ^ m->seed) * UINT64_C(0x9e3779b97f4a7c15) >> 32) & m->newest_mask;
}

/* The slot of a block, or the free slot where the block belongs. */
static uint32_t find_slot(const struct kvr_kvmap *m, uint64_t sh)
{
	uint32_t at = first_slot(m, sh);

	while (m->newest[at] != 0 && m->entries[m->newest[at] - 1].sh != sh)
		at = (at + 1) & m->newest_mask;
	return at;
}

/* Move up the slots behind a freed one that linear probing had displaced. */
static void free_slot(struct kvr_kvmap *m, uint32_t at)
{
	for (uint32_t next = (at + 1) & m->newest_mask; m->newest[next] != 0;
	     next = (next + 1) & m->newest_mask) {
		const uint32_t first = first_slot(m, m->entries[m->newest[next] - 1].sh);

		if (((next - first) & m->newest_mask) < ((next - at) & m->newest_mask))
			continue;
		m->newest[at] = m->newest[next];
		at = next;
	}
	m->newest[at] = 0;
}

int kvr_kvmap__link_names(struct kvr_kvmap *m)
{
	uint32_t slots = 2;

	while (slots < 2 * m->max)
		slots *= 2;
	m->newer = calloc(m->ring_most, sizeof(m->newer[0]));
	m->newest = m->newer != NULL ? calloc(slots, sizeof(m->newest[0])) : NULL;
	m->newest_mask = slots - 1;
	if (m->newest != NULL)
		return 0;
	free(m->newer);
	m->newer = NULL;
	return -ENOMEM;
}

uint32_t kvr_kvmap__link(struct kvr_kvmap *m, uint32_t e)
{
	const uint32_t slot = find_slot(m, m->entries[e].sh), newest = m->newest[slot] - 1;
	uint32_t oldest, n = 2;

	m->tiers[e] |= KVMAP_LINKED;
	m->newest[slot] = e + 1;
	if (newest == UINT32_MAX) {
		m->newer[e] = e;
		return UINT32_MAX;
	}
	kvr_cell_add(&m->st.aliases, 1);
	oldest = m->newer[newest];
	m->newer[newest] = e;
	m->newer[e] = oldest;
	for (uint32_t o = oldest; o != newest; o = m->newer[o])
		n++;
	return n > NAMES_MOST ? oldest : UINT32_MAX;
}

void kvr_kvmap__unlink(struct kvr_kvmap *m, uint32_t e)
{
	const uint32_t slot = find_slot(m, m->entries[e].sh);
	uint32_t older = e;

	while (m->newer[older] != e)
		older = m->newer[older];
	m->newer[older] = m->newer[e];
	if (older == e)
		free_slot(m, slot);
	else if (m->newest[slot] == e + 1)
		m->newest[slot] = older + 1;
}

bool kvr_kvmap__is_repeated(const struct kvr_kvmap *m, uint32_t e, enum kvr_tier tier)
{
	if ((m->tiers[e] & KVMAP_LINKED) == 0)
		return false;
	for (uint32_t o = m->newer[e]; o != e; o = m->newer[o])
		if (o < e && (m->tiers[o] >> tier & 1) != 0)
			return true;
	return false;
}

bool kvr_kvmap__is_shared(const struct kvr_kvmap *m, uint32_t e, enum kvr_tier tier)
{
	if ((m->tiers[e] & KVMAP_LINKED) == 0)
		return false;
	for (uint32_t o = m->newer[e]; o != e; o = m->newer[o])
		if ((m->tiers[o] >> tier & 1) != 0)
			return true;
	return false;
}
