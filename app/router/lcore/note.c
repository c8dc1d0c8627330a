/* SPDX-License-Identifier: BSD-3-Clause */
#include "lcore/note.h"

#include "ingress/fragment.h"
#include "sched/sched.h"

const struct note_info note_types[NOTE_TYPES] = {
#define NOTE_ROW(type, name, part) [type] = {name, part},
	NOTE_LIST(NOTE_ROW)
#undef NOTE_ROW
};

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
