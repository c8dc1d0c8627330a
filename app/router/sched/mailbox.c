/* SPDX-License-Identifier: BSD-3-Clause */
/* Memory of mailboxes: start, and the stop, which frees waiting messages. */
#include "lcore/mailbox.h"
#include "message/frames.h"
#include "sched/sched.h"

#include <errno.h>
#include <stdio.h>

#include <rte_malloc.h>

#include "kvr_rings.h"

int mailbox_create(struct pool *pool, uint32_t size, bool alone)
{
	char name[RTE_RING_NAMESIZE];

	snprintf(name, sizeof(name), "notes%u", pool->number);
	if (!alone) {
		pool->mailbox =
			kvr_rings_create(name, sizeof(struct sched_msg), size, SOCKET_ID_ANY);
		return pool->mailbox != NULL ? 0 : -ENOMEM;
	}
	pool->live.mailbox.mask = size - 1;
	pool->live.mailbox.v =
		rte_zmalloc(name, size * sizeof(struct sched_msg), RTE_CACHE_LINE_SIZE);
	return pool->live.mailbox.v != NULL ? 0 : -ENOMEM;
}

void sched_msg_free(struct lcore *control, const struct sched_msg *msg)
{
	switch (sched_msg_types[msg->type].part) {
	case MSG_PART_JOB:
		job_free(control, msg->job);
		break;
	case MSG_PART_FRAME:
		rte_pktmbuf_free(msg->m);
		break;
	case MSG_PART_FRAMES:
		frames_free(msg->frames);
		break;
	case MSG_PART_NONE:
	case MSG_PART_CODE:
	case MSG_PART_PROGRESS:
	case MSG_PART_SESSION:
	case MSG_PART_MAC:
		break;
	}
}

void mailbox_destroy(struct pool *pool)
{
	struct sched_msg msg;

	while ((pool->mailbox != NULL || pool->live.mailbox.v != NULL) &&
	       mailbox_take(pool, &msg, 1) != 0)
		sched_msg_free(&pool->rt->control, &msg);
	rte_ring_free(pool->mailbox);
	rte_free(pool->live.mailbox.v);
}
