/* SPDX-License-Identifier: BSD-3-Clause */
#include "lcore/mailbox.h"
#include "message/frames.h"
#include "sched/sched.h"

#include <errno.h>
#include <stdio.h>

#include <rte_malloc.h>

#include "kvr_rings.h"

int notes_create(struct pool *p, uint32_t size, bool alone)
{
	char name[RTE_RING_NAMESIZE];

	snprintf(name, sizeof(name), "notes%u", p->number);
	if (!alone) {
		p->notes = kvr_rings_create(name, sizeof(struct note), size, SOCKET_ID_ANY);
		return p->notes != NULL ? 0 : -ENOMEM;
	}
	p->live.notes.mask = size - 1;
	p->live.notes.v = rte_zmalloc(name, size * sizeof(struct note), RTE_CACHE_LINE_SIZE);
	return p->live.notes.v != NULL ? 0 : -ENOMEM;
}

void note_drop(struct lcore *control, const struct note *n)
{
	switch (note_types[n->type].part) {
	case NOTE_PART_JOB:
		job_free(control, n->job);
		break;
	case NOTE_PART_FRAME:
		rte_pktmbuf_free(n->m);
		break;
	case NOTE_PART_FRAMES:
		frames_free(n->frames);
		break;
	case NOTE_PART_NONE:
	case NOTE_PART_CODE:
	case NOTE_PART_PROGRESS:
	case NOTE_PART_SESSION:
	case NOTE_PART_MAC:
		break;
	}
}

void notes_destroy(struct pool *p)
{
	struct note n;

	while ((p->notes != NULL || p->live.notes.v != NULL) && notes_take(p, &n, 1) != 0)
		note_drop(&p->rt->control, &n);
	rte_ring_free(p->notes);
	rte_free(p->live.notes.v);
}
