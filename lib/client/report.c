/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Requests that are only booked, whose user runs them and reports progress; and queries of the
 * potential load of a pool's ranks.
 */
#include "client_pvt.h"

#include <errno.h>
#include <stdlib.h>

#include <rte_common.h>

static void send_report(struct kvr_client *c, struct client_req *r)
{
	kvr_link_send(&c->link, &c->router, KVR_PROGRESS, r->report_ids, &r->report,
		      sizeof(r->report));
	kvr_link_repeat(&c->link, &r->ack, &r->report_us, CLIENT_ROUTE_MAX_US, KVR_TIMER_NEVER);
}

/* Retransmits without limit: PROBE detects an unresponsive router. */
void kvr_client__repeat_report(struct kvr_client *c, struct client_req *r)
{
	if (r->reporting)
		send_report(c, r);
}

int kvr_client_report(struct kvr_client *c, uint64_t id, const struct kvr_client_report *w)
{
	struct client_req *r = kvr_client__find(c, id);

	if (r == NULL || r->end_reported || r->state == CLIENT_ENDED ||
	    r->state == CLIENT_CANCELLING || (r->report.flags & KVR_PROG_F_FIN) != 0)
		return -ENOENT;
	if (!r->book)
		return -EINVAL;
	if (r->state != CLIENT_RUNNING)
		return -EAGAIN;
	kvr_link_tick(&c->link);
	if (r->report_ids.id != 0)
		r->report.seq++;
	r->report.flags |= (w->first ? KVR_PROG_F_FIRST : 0) | (w->last ? KVR_PROG_F_FIN : 0) |
			   (w->last && w->failed ? KVR_PROG_F_ERROR : 0);
	r->report.generated_tokens = RTE_MAX(r->report.generated_tokens, w->generated_tokens);
	r->report.cached_tokens = w->cached_tokens != 0 ? w->cached_tokens : KVR_NONE32;
	r->report_ids = kvr_link_ids(&c->link, c->source, r->id, r->handle);
	r->report_us = CLIENT_ROUTE_US;
	r->reporting = true;
	send_report(c, r);
	return 0;
}

void kvr_client__on_progress_ack(struct kvr_client *c, struct client_req *r, const uint8_t *body)
{
	const struct kvr_wire_progress_ack *w = (const void *)body;

	if (!r->reporting || w->next_seq <= r->report.seq)
		return;
	r->received_us = c->link.now_us;
	r->reporting = false;
	kvr_timer_stop(&c->link.timers, &r->ack);
	if ((r->report.flags & KVR_PROG_F_FIN) != 0)
		kvr_client__end_reason(c, r, KVR_CLIENT_FINISHED, false);
}

void kvr_client__book_over(struct kvr_client *c, struct client_req *r)
{
	/* The router may have processed the final report, and its answer was lost. */
	if ((r->report.flags & KVR_PROG_F_FIN) != 0)
		kvr_client__end_reason(c, r, KVR_CLIENT_FINISHED, false);
	else
		kvr_client__end_reason(c, r, KVR_CLIENT_LOST, true);
}

void kvr_client__on_loads(struct kvr_client *c, struct client_req *r, const uint8_t *body)
{
	const struct kvr_wire_loads *w = (const void *)body;
	const struct kvr_wire_rank_potential *from = (const void *)(w + 1);
	struct kvr_client_loads loads = {
		.n = w->n_ranks, .queue_len = w->queue_len, .pending_tokens = w->pending_tokens};
	struct kvr_client_rank_load *rank;
	const uint64_t id = r->id;

	if (r->kind != KVR_POTENTIAL_LOADS || r->state == CLIENT_FRESH)
		return;
	rank = malloc((w->n_ranks + 1) * sizeof(*rank));
	if (rank == NULL)
		return; /* treated as lost: the query is repeated */
	for (uint32_t i = 0; i < w->n_ranks; i++)
		rank[i] = (struct kvr_client_rank_load){.worker = from[i].worker,
							.dp_rank = from[i].dp_rank,
							.active_requests = from[i].active_requests,
							.prefill_tokens = from[i].prefill_tokens,
							.decode_blocks = from[i].decode_blocks,
							.overlap_blocks = from[i].overlap_blocks,
							.cached_tokens = from[i].cached_tokens};
	loads.rank = rank;
	if (r->ops->on_loads != NULL)
		r->ops->on_loads(c, id, &loads, r->user);
	free(rank);
	if (kvr_client__find(c, id) == r) /* the callback may have cancelled it */
		kvr_client__end_reason(c, r, KVR_CLIENT_QUERIED, false);
}
