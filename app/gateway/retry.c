/* SPDX-License-Identifier: BSD-3-Clause */
/* Decisions about retries, their budget, and the final error. */
#include "retry.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "answer.h"

#define LEAVING 503 /* an agent that is leaving: DISPATCH overtook its GOODBYE */
#define BROKEN	502 /* an engine that died with the request, or is unreachable */
#define RETRY_COST                                                                                 \
	5u	  /* inverse of the retry ratio: retries are at most a fifth of the requests       \
		   */
#define BURST 64u /* initial and maximum credit of retries */

bool gw_retry_no_bodies(const struct gw_call *call, const struct kvr_client_end *e)
{
	const bool rejected = e->reason == KVR_CLIENT_REJECTED;
	const bool prefill = rejected && e->code == KVR_E_PREFILL_FAILED;
	const bool refused = (prefill || (rejected && e->code == KVR_E_DISPATCH_FAILED)) &&
			     e->detail[0] == KVR_CLIENT_NO_BODIES;
	const bool missed = (prefill && e->detail[0] == 408) ||
			    (e->reason == KVR_CLIENT_FAILED && e->status == 408);

	return !call->through && (refused || missed);
}

/* The worker or its engine was lost with the request, which may be the cause. */
static bool is_loss(const struct kvr_client_end *e)
{
	return (e->reason == KVR_CLIENT_FAILED && e->status == BROKEN) ||
	       (e->reason == KVR_CLIENT_REJECTED && e->code == KVR_E_WORKER_LOST);
}

bool gw_retry_elsewhere(const struct gw_call *call, const struct kvr_client_end *e)
{
	const bool rejected = e->reason == KVR_CLIENT_REJECTED;

	if (call->pinned || call->ask.probe || call->query || call->ask.path == GW_PICK ||
	    call->ask.path == GW_LOADS || call->n_failed_at == KVR_CLIENT_FAILED_AT ||
	    (is_loss(e) && call->worker_lost))
		return false;
	if (!rejected)
		return (e->failed || e->refused) && e->place_known;
	return e->code == KVR_E_WORKER_LOST ||
	       (e->code == KVR_E_DISPATCH_FAILED && e->detail[0] == LEAVING);
}

/* Return true if there is time for another attempt, and the thread has credit for it. */
static bool may_retry(const struct gw_call *call)
{
	if (call->until_ms != 0 && gw_now_ms() >= call->until_ms)
		return false;
	if (call->thread->retry_credit >= RETRY_COST)
		return true;
	GW_COUNT(call->thread, GW_RETRIES_DENIED);
	return false;
}

bool gw_again(const struct gw_call *call, const struct kvr_client_end *e)
{
	if (call->started || call->tries >= GW_TRIES || call->req == NULL)
		return false;
	if (gw_retry_elsewhere(call, e))
		return may_retry(call);
	if (call->head_done || call->head.len > 0)
		return false;
	return gw_retry_no_bodies(call, e) || e->reason == KVR_CLIENT_SILENT ||
	       e->reason == KVR_CLIENT_LOST ||
	       (e->reason == KVR_CLIENT_REJECTED && e->code == KVR_E_SHUTDOWN);
}

void gw_retry_earn(struct gw_thread *thread)
{
	if (thread->retry_credit < BURST * RETRY_COST)
		thread->retry_credit++;
}

void gw_retry_begin(struct gw_thread *thread)
{
	thread->retry_credit = BURST * RETRY_COST;
}

static struct gw_error error_of(const struct kvr_client_end *e, char *text, size_t size)
{
	if (e->reason != KVR_CLIENT_REJECTED) {
		gw_error_message(e, text, size);
		return *gw_error_fault(gw_error_reason(e->reason));
	}
	kvr_client_explain(e, text, size);
	return gw_error_refused(e);
}

struct gw_error gw_retry_error(const struct gw_call *call, const struct kvr_client_end *e,
			       char *text, size_t size)
{
	if (call->why_text == NULL || e->reason != KVR_CLIENT_REJECTED ||
	    e->code != KVR_E_NO_ENDPOINTS)
		return error_of(e, text, size);
	snprintf(text, size, "%s", call->why_text);
	return call->why;
}

bool gw_retry_in_time(struct gw_call *call)
{
	const uint64_t now = gw_now_ms();

	if (call->tries == 0 && call->thread->opt->request_ms != 0)
		call->until_ms = now + call->thread->opt->request_ms;
	call->left_ms = call->until_ms > now ? (uint32_t)(call->until_ms - now) : 0;
	return call->until_ms == 0 || call->left_ms > 0;
}

void gw_retry_leave(struct gw_call *call, const struct kvr_client_end *e)
{
	const uint64_t lost = e->reason == KVR_CLIENT_REJECTED ? e->detail[0] : 0;
	char text[512];

	call->thread->retry_credit -= RETRY_COST;
	call->worker_lost = call->worker_lost || is_loss(e);
	/* A lost process takes all its ranks along. */
	call->failed_at[call->n_failed_at++] = (struct kvr_client_place){
		e->place_known ? e->place.worker : lost,
		e->place_known && !is_loss(e) ? e->place.dp_rank : UINT32_MAX};
	call->why = error_of(e, text, sizeof(text));
	free(call->why_text);
	call->why_text = strdup(text);
	gw_answer_keep(call);
}
