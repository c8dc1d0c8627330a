/* SPDX-License-Identifier: BSD-3-Clause */
/* The life cycle of a call: limits, hints, token ids, submission, items, retries, and its end. */
#include "call.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "answer.h"
#include "body_budget.h"
#include "conn.h"
#include "engine_request.h"
#include "pick_lease.h"
#include "pick_reply.h"
#include "retry.h"
#include "source.h"

static void send_to_router(struct gw_call *call);

static void count_end(struct gw_call *call, enum gw_counter what)
{
	if (call->counted)
		return;
	call->counted = true;
	GW_COUNT(call->thread, what);
	kvr_stats_sub(call->thread->row, GW_IN_FLIGHT, 1);
}

static void release_call(struct gw_call *call)
{
	if (call->req != NULL || call->id != 0 || call->question != NULL)
		return;
	LIST_REMOVE(call, link);
	gw_budget_leave(call);
	kvr_client_hints_destroy(call->hints);
	gw_answer_free(call);
	free(call->ids);
	free(call->why_text);
	free(call);
}

static void fail_call(struct gw_call *call, enum gw_fault fault, const char *text)
{
	const struct gw_error *e = gw_error_fault(fault);

	count_end(call, e->status < 499 ? GW_REFUSED : GW_FAILED);
	gw_answer_error(call, e, text != NULL ? text : gw_error_text(fault));
}

/* libh2o releases the request: it was answered, or the client closed the connection. */
static void on_dispose(void *holder)
{
	struct gw_call *call = *(struct gw_call **)holder;

	gw_conn_leave(call);
	call->req = NULL;
	if (call->question != NULL)
		gw_conversation_cancel(call->question);
	call->question = NULL;
	if (call->id != 0)
		kvr_client_cancel(call->router->client, call->id);
	count_end(call, GW_GONE); /* unless counted already */
	release_call(call);
}

/* --- callbacks of the router's client ------------------------------------------------------ */

static void cancel_request(struct gw_call *call)
{
	if (call->id != 0)
		kvr_client_cancel(call->router->client, call->id);
}

static void on_accepted(struct kvr_client *client, uint64_t id, const struct kvr_client_choice *ch,
			void *user)
{
	struct gw_call *call = ((struct gw_try *)user)->call;
	uint64_t name;

	(void)client;
	(void)id;
	if (call == NULL)
		return;
	call->choice = *ch;
	if (call->ask.path != GW_PICK || call->req == NULL || call->complete)
		return;
	name = gw_lease_begin(call, call->lease_ms);
	if (name == 0) {
		fail_call(call, GW_OUT_OF_MEMORY, NULL);
		cancel_request(call);
		return;
	}
	GW_COUNT(call->thread, GW_PICKED);
	count_end(call, GW_ANSWERED);
	gw_answer_pick(call, name);
}

static void on_loads(struct kvr_client *client, uint64_t id, const struct kvr_client_loads *loads,
		     void *user)
{
	struct gw_call *call = ((struct gw_try *)user)->call;

	if (call == NULL || call->req == NULL || call->complete)
		return;
	count_end(call, GW_ANSWERED);
	gw_answer_loads(call, loads);
}

static void on_item(struct kvr_client *client, uint64_t id, const struct kvr_client_item *it,
		    void *user)
{
	struct gw_call *call = ((struct gw_try *)user)->call;
	enum gw_fault room = GW_FAULTS;
	int rc;

	if (call == NULL || call->req == NULL || call->complete)
		return;
	GW_COUNT(call->thread, GW_ITEMS);
	rc = gw_answer_add(call, it);
	if (rc == 0)
		room = gw_budget_take(call, GW_BUDGET_GROWS);
	if (room != GW_FAULTS) {
		fail_call(call, room, NULL);
		cancel_request(call);
	}
	if (rc == 0)
		return;
	if (rc == -EBADMSG)
		GW_COUNT(call->thread, GW_BAD_ANSWERS);
	if (rc == -ENOBUFS)
		GW_COUNT(call->thread, GW_SLOW_READERS);
	fail_call(call,
		  rc == -EBADMSG   ? GW_ENGINE_GARBAGE
		  : rc == -ENOBUFS ? GW_READER_TOO_SLOW
				   : GW_OUT_OF_MEMORY,
		  NULL);
	cancel_request(call);
}

static void on_finished(struct gw_call *call)
{
	if (gw_answer_end(call) == 0) {
		count_end(call, GW_ANSWERED);
		return;
	}
	GW_COUNT(call->thread, GW_BAD_ANSWERS);
	fail_call(call, GW_ENGINE_GARBAGE, NULL);
}

/* An engine's own error is better than the gateway's. */
static void on_failed(struct gw_call *call, const struct kvr_client_end *e)
{
	char text[512];
	const struct gw_error error = gw_retry_error(call, e, text, sizeof(text));

	if (gw_answer_kept(call)) {
		on_finished(call);
		return;
	}
	count_end(call, error.status < 499 ? GW_REFUSED : GW_FAILED);
	gw_answer_error(call, &error, text);
}

static void on_end(struct kvr_client *client, uint64_t id, const struct kvr_client_end *e,
		   void *user)
{
	struct gw_try *try = user;
	struct gw_call *call = try->call;

	if (try->lease != NULL)
		gw_lease_ended(try->lease, e);
	free(try);
	if (call == NULL)
		return; /* retried elsewhere, or a booking */
	call->id = 0;
	call->at_router = NULL;
	if (call->req == NULL || call->complete) {
		release_call(call);
		return;
	}
	if (gw_router_ended(call->router, e, gw_again(call, e))) {
		GW_COUNT(call->thread, GW_RESUBMITTED);
		if (gw_retry_elsewhere(call, e)) {
			GW_COUNT(call->thread, GW_RETRIES);
			gw_retry_leave(call, e);
		} else if (gw_retry_no_bodies(call, e)) {
			call->through = true;
			call->not_taken = e->reason == KVR_CLIENT_FAILED || e->detail[0] == 408;
		} else if (e->reason != KVR_CLIENT_LOST) {
			call->tried |= gw_router_bit(call->router);
		}
		send_to_router(call);
	} else if (e->reason == KVR_CLIENT_FINISHED) {
		gw_answer_track(call, e->tracker);
		on_finished(call);
	} else if (e->reason == KVR_CLIENT_QUERIED) {
		count_end(call, GW_ANSWERED);
		gw_answer_choice(call);
	} else if (e->reason == KVR_CLIENT_FAILED && call->head_done && call->status >= 400) {
		on_finished(call); /* the engine's own message */
	} else {
		on_failed(call, e);
	}
	release_call(call);
}

static const struct kvr_client_ops ops = {
	.on_accepted = on_accepted, .on_item = on_item, .on_loads = on_loads, .on_end = on_end};

static int submit_request(struct gw_call *call, const struct gw_model *m)
{
	struct kvr_client_request q = {.pool_name = m->pool,
				       .isl = call->n_ids > 0 ? call->n_ids : call->ask.isl_guess,
				       .max_tokens = call->ask.max_tokens,
				       .expected_output_tokens = call->expected_output_tokens,
				       .request_ms = call->left_ms,
				       .hints = call->hints,
				       .failed_at = call->failed_at,
				       .n_failed_at = call->n_failed_at,
				       .ops = &ops,
				       .user = calloc(1, sizeof(struct gw_try))};
	uint64_t *sh = gw_request_hashes(call, m, &q.n_hashes);
	size_t len = 0;
	char *message = NULL;
	int rc = q.user != NULL ? gw_engine_request(call, &message, &len) : -ENOMEM;

	q.hashes = sh;
	q.body = message;
	q.body_len = (uint32_t)len;
	q.flags = call->ask.path == GW_PICK    ? KVR_CLIENT_BOOK
		  : call->ask.path == GW_LOADS ? KVR_CLIENT_LOADS
		  : call->query		       ? KVR_CLIENT_QUERY
		  : call->thread->opt->direct  ? KVR_CLIENT_DIRECT
					       : 0;
	q.flags |= (call->through ? KVR_CLIENT_INLINE : 0) | (call->timing ? KVR_CLIENT_TRACK : 0) |
		   (call->explain ? 0 : KVR_CLIENT_QUIET);
	if (call->ask.probe &&
	    (q.flags & (KVR_CLIENT_BOOK | KVR_CLIENT_LOADS | KVR_CLIENT_QUERY)) == 0)
		q.flags |= KVR_CLIENT_HEALTH;
	if (rc == 0)
		rc = kvr_client_submit(call->router->client, &q, &call->id);
	if (rc == 0) {
		call->at_router = q.user;
		call->at_router->call = call;
	} else {
		free(q.user);
	}
	free(message);
	free(sh);
	return rc;
}

/* An adapter that clients name as a model is a hint for the router. */
static int hint_adapter(struct gw_call *call, const char *lora)
{
	if (lora == NULL || call->lora[0] != '\0')
		return 0;
	if (call->hints == NULL)
		call->hints = kvr_client_hints_create();
	if (call->hints == NULL)
		return -ENOMEM;
	snprintf(call->lora, sizeof(call->lora), "%s", lora);
	return kvr_client_hint_lora(call->hints, lora);
}

static void send_to_router(struct gw_call *call)
{
	struct gw_model m;
	char text[320];
	int rc;

	call->choice = (struct kvr_client_choice){0};
	call->router = gw_router_pick(call->thread, call->tried);
	if (call->router == NULL) {
		fail_call(call, GW_NO_ROUTER, NULL);
		return;
	}
	if (!gw_router_model(call->router, call->ask.model, &m)) {
		snprintf(text, sizeof(text), "the model '%s' is not available", call->ask.model);
		fail_call(call, GW_NO_MODEL, text);
		return;
	}
	if (!gw_retry_in_time(call)) {
		fail_call(call, GW_TIMED_OUT, NULL);
		return;
	}
	call->tries++;
	rc = hint_adapter(call, m.lora);
	if (rc == 0)
		rc = submit_request(call, &m);
	if (rc == 0)
		return;
	if (rc == -EMSGSIZE && call->not_taken) {
		fail_call(call, GW_BODY_NOT_TAKEN, NULL);
	} else if (rc == -EMSGSIZE) {
		GW_COUNT(call->thread, GW_TOO_LARGE);
		fail_call(call, GW_BODY_TOO_LARGE, "the request exceeds the limit of the router");
	} else if (rc == -EINVAL) {
		fail_call(call, GW_BAD_REQUEST,
			  "a routing hint, the total size of hints, or a header field is invalid");
	} else {
		fail_call(call,
			  rc == -EBUSY	  ? GW_TOO_MANY
			  : rc == -ENOMEM ? GW_OUT_OF_MEMORY
					  : GW_NO_ROUTER,
			  NULL);
	}
}

void gw_calls_move(struct gw_router *router)
{
	struct gw_call *call, *next;

	for (call = LIST_FIRST(&router->thread->calls); call != NULL; call = next) {
		const uint64_t id = call->id;

		next = LIST_NEXT(call, link);
		if (call->router != router || id == 0 || call->req == NULL || call->head_done ||
		    call->head.len > 0 || call->tries >= GW_TRIES ||
		    gw_router_pick(call->thread, call->tried | gw_router_bit(router)) == NULL)
			continue;
		call->tried |= gw_router_bit(router);
		call->id = 0; /* the call is not valid afterwards */
		call->at_router->call = NULL;
		call->at_router = NULL;
		kvr_client_cancel(router->client, id);
		GW_COUNT(call->thread, GW_RESUBMITTED);
		send_to_router(call);
	}
}

/* --- from the client ----------------------------------------------------------------------- */

static void on_ids(void *arg, uint32_t *ids, uint32_t n)
{
	struct gw_call *call = arg;

	call->question = NULL;
	call->ids = ids;
	call->n_ids = ids != NULL ? n : 0;
	if (ids == NULL)
		GW_COUNT(call->thread, GW_ROUTED_BY_LOAD);
	send_to_router(call);
}

/* Do not ask the tokenizer for a request that will be rejected. */
static bool is_served(const struct gw_call *call)
{
	const struct gw_router *router = gw_router_pick(call->thread, call->tried);
	struct gw_model m;

	return router == NULL || gw_router_model(router, call->ask.model, &m);
}

static void find_ids(struct gw_call *call)
{
	if (call->ask.form == GW_PROMPT_IDS) {
		call->ids = malloc(call->ask.n_ids * sizeof(*call->ids));
		if (call->ids == NULL) {
			fail_call(call, GW_OUT_OF_MEMORY, NULL);
			return;
		}
		gw_ask_ids(&call->ask, call->ids);
		call->n_ids = call->ask.n_ids;
		send_to_router(call);
		return;
	}
	if (!is_served(call))
		send_to_router(call); /* which has the reason */
	else if (call->thread->talks == NULL || call->ask.form == GW_PROMPT_OPAQUE)
		on_ids(call, NULL, 0);
	else
		call->question = gw_conversation_ask(call->thread->talks, &call->ask,
						     gw_source_name(call->source), on_ids, call);
}

/* Read hints of body and headers. @return 0, -EINVAL with @p err. */
static int take_hints(struct gw_call *call, struct gw_hints *h, char *err, size_t errlen)
{
	const h2o_headers_t *headers = &call->req->headers;
	int rc = 0;

	for (size_t i = 0; i < headers->size && rc >= 0; i++)
		rc = gw_hints_header(h, headers->entries[i].name->base,
				     headers->entries[i].name->len, headers->entries[i].value.base,
				     headers->entries[i].value.len, err, errlen);
	if (rc < 0)
		return rc;
	call->query = h->query;
	call->explain = h->explain || call->thread->opt->explain;
	call->timing = h->timing;
	call->token_ids = h->token_ids;
	call->pinned = gw_hints_pinned(h);
	call->expected_output_tokens = h->expected_output_tokens;
	call->lease_ms = h->lease_ms != 0 && h->lease_ms < call->thread->opt->lease_ms
				 ? h->lease_ms
				 : call->thread->opt->lease_ms;
	memcpy(call->lora, h->lora, sizeof(call->lora));
	memcpy(call->ns, h->cache_namespace, sizeof(call->ns));
	if (!h->any)
		return 0;
	call->hints = kvr_client_hints_create();
	if (call->hints == NULL || gw_hints_list(h, call->hints) != 0) {
		snprintf(err, errlen, "a routing hint is invalid");
		return -EINVAL;
	}
	return 0;
}

static struct gw_call *create_call(struct gw_thread *thread, h2o_req_t *req)
{
	struct gw_call *call = calloc(1, sizeof(*call)), **holder;

	if (call == NULL)
		return NULL;
	call->thread = thread;
	call->req = req;
	holder = h2o_mem_alloc_shared(&req->pool, sizeof(*holder), on_dispose);
	*holder = call;
	LIST_INSERT_HEAD(&thread->calls, call, link);
	GW_COUNT(thread, GW_REQUESTS);
	gw_retry_earn(thread);
	kvr_stats_add(thread->row, GW_IN_FLIGHT, 1);
	kvr_stats_add(thread->row, GW_BYTES_IN, req->entity.len);
	gw_conn_enter(call);
	return call;
}

void gw_call_begin(struct gw_thread *thread, h2o_req_t *req, enum gw_path path)
{
	struct gw_call *call = create_call(thread, req);
	static __thread struct gw_hints hints;
	enum gw_fault room;
	char err[256] = "";
	int rc;

	if (call == NULL) {
		gw_answer_plain_error(req, GW_OUT_OF_MEMORY, NULL);
		return;
	}
	if (gw_conn_is_half_closed(call)) {
		gw_call_half_closed(call);
		return;
	}
	if (kvr_stats_get(thread->row, GW_IN_FLIGHT) > thread->opt->in_flight ||
	    gw_conn_floods(call) || (path == GW_PICK && gw_leases_full(thread))) {
		GW_COUNT(thread, GW_OVERLOADED);
		fail_call(call, GW_TOO_MANY, NULL);
		return;
	}
	room = gw_budget_take(call, GW_BUDGET_NEW);
	if (room != GW_FAULTS) {
		fail_call(call, room, NULL);
		return;
	}
	memset(&hints, 0, sizeof(hints));
	rc = gw_ask_read(&call->ask, path, req->entity.base, req->entity.len, &hints, err,
			 sizeof(err));
	if (rc == 0)
		rc = take_hints(call, &hints, err, sizeof(err));
	if (rc < 0) {
		GW_COUNT(thread, GW_BAD_JSON);
		fail_call(call, GW_BAD_REQUEST, err);
		return;
	}
	find_ids(call);
}

static void end_now(struct gw_call *call, enum gw_counter what, enum gw_fault fault)
{
	if (call->req == NULL || call->complete)
		return;
	if (call->question != NULL)
		gw_conversation_cancel(call->question);
	call->question = NULL;
	count_end(call, what);
	gw_answer_error(call, gw_error_fault(fault), gw_error_text(fault));
	cancel_request(call);
}

void gw_call_half_closed(struct gw_call *call)
{
	end_now(call, GW_GONE, GW_CLIENT_GONE);
}

void gw_calls_end(struct gw_thread *thread)
{
	struct gw_call *call;

	LIST_FOREACH (call, &thread->calls, link)
		end_now(call, GW_FAILED, GW_STOPPING);
}
