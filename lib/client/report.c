/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Requests that are only booked, whose user runs them and reports progress; and queries of the
 * potential load of a pool's ranks.
 */
#include "client_pvt.h"

#include <errno.h>
#include <stdlib.h>

#include <rte_common.h>

static void send_report(struct kvr_client *client, struct client_req *req)
{
	kvr_link_send(&client->link, &client->router, KVR_PROGRESS, req->report_ids, &req->report,
		      sizeof(req->report));
	kvr_link_repeat(&client->link, &req->ack, &req->report_us, CLIENT_ROUTE_MAX_US,
			KVR_TIMER_NEVER);
}

/* Retransmits without limit: PROBE detects an unresponsive router. */
void kvr_client__repeat_report(struct kvr_client *client, struct client_req *req)
{
	if (req->reporting)
		send_report(client, req);
}

int kvr_client_report(struct kvr_client *client, uint64_t id, const struct kvr_client_report *w)
{
	struct client_req *req = kvr_client__find(client, id);

	if (req == NULL || req->end_reported || req->state == CLIENT_ENDED ||
	    req->state == CLIENT_CANCELLING || (req->report.flags & KVR_PROG_F_FIN) != 0)
		return -ENOENT;
	if (!req->book)
		return -EINVAL;
	if (req->state != CLIENT_RUNNING)
		return -EAGAIN;
	kvr_link_tick(&client->link);
	if (req->report_ids.id != 0)
		req->report.seq++;
	req->report.flags |= (w->first ? KVR_PROG_F_FIRST : 0) | (w->last ? KVR_PROG_F_FIN : 0) |
			     (w->last && w->failed ? KVR_PROG_F_ERROR | KVR_PROG_F_FAILED : 0);
	req->report.generated_tokens = RTE_MAX(req->report.generated_tokens, w->generated_tokens);
	req->report.cached_tokens = w->cached_tokens != 0 ? w->cached_tokens : KVR_NONE32;
	req->report_ids = kvr_link_ids(&client->link, client->source, req->id, req->handle);
	req->report_us = CLIENT_ROUTE_US;
	req->reporting = true;
	send_report(client, req);
	return 0;
}

void kvr_client__on_progress_ack(struct kvr_client *client, struct client_req *req,
				 const uint8_t *body)
{
	const struct kvr_wire_progress_ack *w = (const void *)body;

	if (!req->reporting || w->next_seq <= req->report.seq)
		return;
	req->received_us = client->link.now_us;
	req->reporting = false;
	kvr_timer_stop(&client->link.timers, &req->ack);
	if ((req->report.flags & KVR_PROG_F_FIN) != 0)
		kvr_client__end_reason(client, req, KVR_CLIENT_FINISHED, false);
}

void kvr_client__book_over(struct kvr_client *client, struct client_req *req)
{
	/* The router may have processed the final report, and its answer was lost. */
	if ((req->report.flags & KVR_PROG_F_FIN) != 0)
		kvr_client__end_reason(client, req, KVR_CLIENT_FINISHED, false);
	else
		kvr_client__end_reason(client, req, KVR_CLIENT_LOST, true);
}

void kvr_client__on_loads(struct kvr_client *client, struct client_req *req, const uint8_t *body)
{
	const struct kvr_wire_loads *w = (const void *)body;
	const struct kvr_wire_rank_potential *from = (const void *)(w + 1);
	struct kvr_client_loads loads = {
		.n = w->n_ranks, .queue_len = w->queue_len, .pending_tokens = w->pending_tokens};
	struct kvr_client_rank_load *rank;
	const uint64_t id = req->id;

	if (req->kind != KVR_POTENTIAL_LOADS || req->state == CLIENT_FRESH)
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
	if (req->ops->on_loads != NULL)
		req->ops->on_loads(client, id, &loads, req->user);
	free(rank);
	if (kvr_client__find(client, id) == req) /* the callback may have cancelled it */
		kvr_client__end_reason(client, req, KVR_CLIENT_QUERIED, false);
}
