/* SPDX-License-Identifier: BSD-3-Clause */
/* Replies to /pick and to queries of loads. */
#include "pick_reply.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "answer.h"
#include "kvr_types.h"

#define JSON "application/json"

/* Text from an agent may be invalid in a header or JSON. */
static bool is_plain(const char *s)
{
	for (; *s != '\0'; s++)
		if (*s <= ' ' || *s >= 0x7f || *s == '"' || *s == '\\')
			return false;
	return true;
}

static void add_header(h2o_req_t *req, const char *name, const char *value)
{
	const h2o_iovec_t v = h2o_strdup(&req->pool, value, strlen(value));

	h2o_add_header_by_str(&req->pool, &req->res.headers, name, strlen(name), 1, NULL, v.base,
			      v.len);
}

static void print_endpoint(FILE *out, const char *name, const char *endpoint)
{
	if (endpoint != NULL)
		fprintf(out, ",\"%s\":\"%s\"", name, endpoint);
	else
		fprintf(out, ",\"%s\":null", name);
}

static void send_reply(struct gw_call *call, FILE *out, char **text, const size_t *len)
{
	fclose(out);
	call->started = call->complete = call->thread->touched = true;
	call->given_ms = gw_now_ms();
	gw_answer_page(call->req, 200, JSON, *text, *len);
	free(*text);
}

void gw_answer_pick(struct gw_call *call, uint64_t name)
{
	const struct kvr_client_choice *ch = &call->choice;
	const char *engine = ch->engine != NULL && is_plain(ch->engine) ? ch->engine : NULL;
	const char *prefill = ch->prefill_engine != NULL && is_plain(ch->prefill_engine)
				      ? ch->prefill_engine
				      : NULL;
	char *text = NULL, booking[17], number[24];
	size_t len = 0;
	FILE *out = open_memstream(&text, &len);

	if (out == NULL) {
		gw_answer_error(call, gw_error_fault(GW_OUT_OF_MEMORY),
				gw_error_text(GW_OUT_OF_MEMORY));
		return;
	}
	snprintf(booking, sizeof(booking), "%016" PRIx64, name);
	snprintf(number, sizeof(number), "%u", ch->dp_rank);
	fprintf(out, "{\"booking\":\"%s\",\"lease_ms\":%u", booking, call->lease_ms);
	print_endpoint(out, "endpoint", engine);
	fprintf(out,
		",\"worker_id\":%" PRIu64
		",\"dp_rank\":%u,\"overlap_blocks\":%u,\"required_blocks\":%u,\"cached_tokens\":%u,\"way\":\"%s\"",
		ch->worker, ch->dp_rank, ch->overlap_blocks, ch->required_blocks, ch->cached_tokens,
		kvr_way_name(ch->way));
	print_endpoint(out, "prefill_endpoint", prefill);
	if (ch->prefill_worker != 0)
		fprintf(out, ",\"prefill_worker_id\":%" PRIu64 ",\"prefill_dp_rank\":%u",
			ch->prefill_worker, ch->prefill_dp_rank);
	else
		fprintf(out, ",\"prefill_worker_id\":null");
	fputc('}', out);
	add_header(call->req, "x-kvroute-booking", booking);
	add_header(call->req, "x-data-parallel-rank", number);
	if (engine != NULL)
		add_header(call->req, "x-gateway-destination-endpoint", engine);
	if (prefill != NULL)
		add_header(call->req, "x-prefiller-host-port", prefill);
	send_reply(call, out, &text, &len);
}

void gw_answer_loads(struct gw_call *call, const struct kvr_client_loads *loads)
{
	char *text = NULL;
	size_t len = 0;
	FILE *out = open_memstream(&text, &len);

	if (out == NULL) {
		gw_answer_error(call, gw_error_fault(GW_OUT_OF_MEMORY),
				gw_error_text(GW_OUT_OF_MEMORY));
		return;
	}
	fprintf(out,
		"{\"queue_len\":%u,\"pending_tokens\":%" PRIu64 ",\"token_count\":%u,\"ranks\":[",
		loads->queue_len, loads->pending_tokens, call->n_ids);
	for (uint32_t i = 0; i < loads->n; i++) {
		const struct kvr_client_rank_load *r = &loads->rank[i];

		fprintf(out,
			"%s{\"worker_id\":%" PRIu64
			",\"dp_rank\":%u,\"overlap_blocks\":%u,\"cached_tokens\":%u,\"active_requests\":%u,\"prefill_tokens\":%" PRIu64
			",\"decode_blocks\":%" PRIu64 "}",
			i > 0 ? "," : "", r->worker, r->dp_rank, r->overlap_blocks,
			r->cached_tokens, r->active_requests, r->prefill_tokens, r->decode_blocks);
	}
	fprintf(out, "]}");
	send_reply(call, out, &text, &len);
}
