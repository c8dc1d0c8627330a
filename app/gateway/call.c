/* SPDX-License-Identifier: BSD-3-Clause */
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

static void send_to_router(struct gw_call *c);

static void count_end(struct gw_call *c, enum gw_counter what)
{
	if (c->counted)
		return;
	c->counted = true;
	GW_COUNT(c->t, what);
	kvr_stats_sub(c->t->row, GW_IN_FLIGHT, 1);
}

static void release_call(struct gw_call *c)
{
	if (c->req != NULL || c->id != 0 || c->question != NULL)
		return;
	LIST_REMOVE(c, link);
	gw_budget_leave(c);
	kvr_client_hints_destroy(c->hints);
	gw_answer_free(c);
	free(c->ids);
	free(c->why_text);
	free(c);
}

static void fail_call(struct gw_call *c, enum gw_fault fault, const char *text)
{
	const struct gw_error *e = gw_error_fault(fault);

	count_end(c, e->status < 499 ? GW_REFUSED : GW_FAILED);
	gw_answer_error(c, e, text != NULL ? text : gw_error_text(fault));
}

/* libh2o releases the request: it was answered, or the client closed the connection. */
static void on_dispose(void *holder)
{
	struct gw_call *c = *(struct gw_call **)holder;

	gw_conn_leave(c);
	c->req = NULL;
	if (c->question != NULL)
		gw_conversation_cancel(c->question);
	c->question = NULL;
	if (c->id != 0)
		kvr_client_cancel(c->router->client, c->id);
	count_end(c, GW_GONE); /* unless counted already */
	release_call(c);
}

/* --- callbacks of the router's client ------------------------------------------------------ */

static void cancel_request(struct gw_call *c)
{
	if (c->id != 0)
		kvr_client_cancel(c->router->client, c->id);
}

static void on_accepted(struct kvr_client *client, uint64_t id, const struct kvr_client_choice *ch,
			void *user)
{
	struct gw_call *c = ((struct gw_try *)user)->call;
	uint64_t name;

	(void)client;
	(void)id;
	if (c == NULL)
		return;
	c->choice = *ch;
	if (c->ask.path != GW_PICK || c->req == NULL || c->complete)
		return;
	name = gw_lease_begin(c, c->lease_ms);
	if (name == 0) {
		fail_call(c, GW_OUT_OF_MEMORY, NULL);
		cancel_request(c);
		return;
	}
	GW_COUNT(c->t, GW_PICKED);
	count_end(c, GW_ANSWERED);
	gw_answer_pick(c, name);
}

static void on_loads(struct kvr_client *client, uint64_t id, const struct kvr_client_loads *loads,
		     void *user)
{
	struct gw_call *c = ((struct gw_try *)user)->call;

	if (c == NULL || c->req == NULL || c->complete)
		return;
	count_end(c, GW_ANSWERED);
	gw_answer_loads(c, loads);
}

static void on_item(struct kvr_client *client, uint64_t id, const struct kvr_client_item *it,
		    void *user)
{
	struct gw_call *c = ((struct gw_try *)user)->call;
	enum gw_fault room = GW_FAULTS;
	int rc;

	if (c == NULL || c->req == NULL || c->complete)
		return;
	GW_COUNT(c->t, GW_ITEMS);
	rc = gw_answer_add(c, it);
	if (rc == 0)
		room = gw_budget_take(c, GW_BUDGET_GROWS);
	if (room != GW_FAULTS) {
		fail_call(c, room, NULL);
		cancel_request(c);
	}
	if (rc == 0)
		return;
	if (rc == -EBADMSG)
		GW_COUNT(c->t, GW_BAD_ANSWERS);
	if (rc == -ENOBUFS)
		GW_COUNT(c->t, GW_SLOW_READERS);
	fail_call(c,
		  rc == -EBADMSG   ? GW_ENGINE_GARBAGE
		  : rc == -ENOBUFS ? GW_READER_TOO_SLOW
				   : GW_OUT_OF_MEMORY,
		  NULL);
	cancel_request(c);
}

static void on_finished(struct gw_call *c)
{
	if (gw_answer_end(c) == 0) {
		count_end(c, GW_ANSWERED);
		return;
	}
	GW_COUNT(c->t, GW_BAD_ANSWERS);
	fail_call(c, GW_ENGINE_GARBAGE, NULL);
}

/* An engine's own error is better than the gateway's. */
static void on_failed(struct gw_call *c, const struct kvr_client_end *e)
{
	char text[512];
	const struct gw_error error = gw_retry_error(c, e, text, sizeof(text));

	if (gw_answer_kept(c)) {
		on_finished(c);
		return;
	}
	count_end(c, error.status < 499 ? GW_REFUSED : GW_FAILED);
	gw_answer_error(c, &error, text);
}

static void on_end(struct kvr_client *client, uint64_t id, const struct kvr_client_end *e,
		   void *user)
{
	struct gw_try *try = user;
	struct gw_call *c = try->call;

	if (try->lease != NULL)
		gw_lease_ended(try->lease, e);
	free(try);
	if (c == NULL)
		return; /* retried elsewhere, or a booking */
	c->id = 0;
	c->at_router = NULL;
	if (c->req == NULL || c->complete) {
		release_call(c);
		return;
	}
	if (gw_router_ended(c->router, e, gw_again(c, e))) {
		GW_COUNT(c->t, GW_RESUBMITTED);
		if (gw_retry_elsewhere(c, e)) {
			GW_COUNT(c->t, GW_RETRIES);
			gw_retry_leave(c, e);
		} else if (gw_retry_no_bodies(c, e)) {
			c->through = true;
			c->not_taken = e->reason == KVR_CLIENT_FAILED || e->detail[0] == 408;
		} else if (e->reason != KVR_CLIENT_LOST) {
			c->tried |= gw_router_bit(c->router);
		}
		send_to_router(c);
	} else if (e->reason == KVR_CLIENT_FINISHED) {
		gw_answer_track(c, e->tracker);
		on_finished(c);
	} else if (e->reason == KVR_CLIENT_QUERIED) {
		count_end(c, GW_ANSWERED);
		gw_answer_choice(c);
	} else if (e->reason == KVR_CLIENT_FAILED && c->head_done && c->status >= 400) {
		on_finished(c); /* the engine's own message */
	} else {
		on_failed(c, e);
	}
	release_call(c);
}

static const struct kvr_client_ops ops = {
	.on_accepted = on_accepted, .on_item = on_item, .on_loads = on_loads, .on_end = on_end};

static int submit_request(struct gw_call *c, const struct gw_model *m)
{
	struct kvr_client_request q = {.pool_name = m->pool,
				       .isl = c->n_ids > 0 ? c->n_ids : c->ask.isl_guess,
				       .max_tokens = c->ask.max_tokens,
				       .expected_output_tokens = c->expected_output_tokens,
				       .request_ms = c->left_ms,
				       .hints = c->hints,
				       .failed_at = c->failed_at,
				       .n_failed_at = c->n_failed_at,
				       .ops = &ops,
				       .user = calloc(1, sizeof(struct gw_try))};
	uint64_t *sh = gw_request_hashes(c, m, &q.n_hashes);
	size_t len = 0;
	char *message = NULL;
	int rc = q.user != NULL ? gw_engine_request(c, &message, &len) : -ENOMEM;

	q.hashes = sh;
	q.body = message;
	q.body_len = (uint32_t)len;
	q.flags = c->ask.path == GW_PICK    ? KVR_CLIENT_BOOK
		  : c->ask.path == GW_LOADS ? KVR_CLIENT_LOADS
		  : c->query		    ? KVR_CLIENT_QUERY
		  : c->t->opt->direct	    ? KVR_CLIENT_DIRECT
					    : 0;
	q.flags |= (c->through ? KVR_CLIENT_INLINE : 0) | (c->timing ? KVR_CLIENT_TRACK : 0) |
		   (c->explain ? 0 : KVR_CLIENT_QUIET);
	if (c->ask.probe &&
	    (q.flags & (KVR_CLIENT_BOOK | KVR_CLIENT_LOADS | KVR_CLIENT_QUERY)) == 0)
		q.flags |= KVR_CLIENT_HEALTH;
	if (rc == 0)
		rc = kvr_client_submit(c->router->client, &q, &c->id);
	if (rc == 0) {
		c->at_router = q.user;
		c->at_router->call = c;
	} else {
		free(q.user);
	}
	free(message);
	free(sh);
	return rc;
}

/* An adapter that clients name as a model is a hint for the router. */
static int hint_adapter(struct gw_call *c, const char *lora)
{
	if (lora == NULL || c->lora[0] != '\0')
		return 0;
	if (c->hints == NULL)
		c->hints = kvr_client_hints_create();
	if (c->hints == NULL)
		return -ENOMEM;
	snprintf(c->lora, sizeof(c->lora), "%s", lora);
	return kvr_client_hint_lora(c->hints, lora);
}

static void send_to_router(struct gw_call *c)
{
	struct gw_model m;
	char text[320];
	int rc;

	c->choice = (struct kvr_client_choice){0};
	c->router = gw_router_pick(c->t, c->tried);
	if (c->router == NULL) {
		fail_call(c, GW_NO_ROUTER, NULL);
		return;
	}
	if (!gw_router_model(c->router, c->ask.model, &m)) {
		snprintf(text, sizeof(text), "the model '%s' is not available", c->ask.model);
		fail_call(c, GW_NO_MODEL, text);
		return;
	}
	if (!gw_retry_in_time(c)) {
		fail_call(c, GW_TIMED_OUT, NULL);
		return;
	}
	c->tries++;
	rc = hint_adapter(c, m.lora);
	if (rc == 0)
		rc = submit_request(c, &m);
	if (rc == 0)
		return;
	if (rc == -EMSGSIZE && c->not_taken) {
		fail_call(c, GW_BODY_NOT_TAKEN, NULL);
	} else if (rc == -EMSGSIZE) {
		GW_COUNT(c->t, GW_TOO_LARGE);
		fail_call(c, GW_BODY_TOO_LARGE, "the request exceeds the limit of the router");
	} else if (rc == -EINVAL) {
		fail_call(c, GW_BAD_REQUEST,
			  "a routing hint, the total size of hints, or a header field is invalid");
	} else {
		fail_call(c,
			  rc == -EBUSY	  ? GW_TOO_MANY
			  : rc == -ENOMEM ? GW_OUT_OF_MEMORY
					  : GW_NO_ROUTER,
			  NULL);
	}
}

void gw_calls_move(struct gw_router *r)
{
	struct gw_call *c, *next;

	for (c = LIST_FIRST(&r->t->calls); c != NULL; c = next) {
		const uint64_t id = c->id;

		next = LIST_NEXT(c, link);
		if (c->router != r || id == 0 || c->req == NULL || c->head_done ||
		    c->head.len > 0 || c->tries >= GW_TRIES ||
		    gw_router_pick(c->t, c->tried | gw_router_bit(r)) == NULL)
			continue;
		c->tried |= gw_router_bit(r);
		c->id = 0; /* the call is not valid afterwards */
		c->at_router->call = NULL;
		c->at_router = NULL;
		kvr_client_cancel(r->client, id);
		GW_COUNT(c->t, GW_RESUBMITTED);
		send_to_router(c);
	}
}

/* --- from the client ----------------------------------------------------------------------- */

static void on_ids(void *arg, uint32_t *ids, uint32_t n)
{
	struct gw_call *c = arg;

	c->question = NULL;
	c->ids = ids;
	c->n_ids = ids != NULL ? n : 0;
	if (ids == NULL)
		GW_COUNT(c->t, GW_ROUTED_BY_LOAD);
	send_to_router(c);
}

/* Do not ask the tokenizer for a request that will be rejected. */
static bool is_served(const struct gw_call *c)
{
	const struct gw_router *r = gw_router_pick(c->t, c->tried);
	struct gw_model m;

	return r == NULL || gw_router_model(r, c->ask.model, &m);
}

static void find_ids(struct gw_call *c)
{
	if (c->ask.form == GW_PROMPT_IDS) {
		c->ids = malloc(c->ask.n_ids * sizeof(*c->ids));
		if (c->ids == NULL) {
			fail_call(c, GW_OUT_OF_MEMORY, NULL);
			return;
		}
		gw_ask_ids(&c->ask, c->ids);
		c->n_ids = c->ask.n_ids;
		send_to_router(c);
		return;
	}
	if (!is_served(c))
		send_to_router(c); /* which has the reason */
	else if (c->t->talks == NULL || c->ask.form == GW_PROMPT_OPAQUE)
		on_ids(c, NULL, 0);
	else
		c->question = gw_conversation_ask(c->t->talks, &c->ask, gw_source_name(c->source),
						  on_ids, c);
}

/* Read hints of body and headers. @return 0, -EINVAL with @p err. */
static int take_hints(struct gw_call *c, struct gw_hints *h, char *err, size_t errlen)
{
	const h2o_headers_t *headers = &c->req->headers;
	int rc = 0;

	for (size_t i = 0; i < headers->size && rc >= 0; i++)
		rc = gw_hints_header(h, headers->entries[i].name->base,
				     headers->entries[i].name->len, headers->entries[i].value.base,
				     headers->entries[i].value.len, err, errlen);
	if (rc < 0)
		return rc;
	c->query = h->query;
	c->explain = h->explain || c->t->opt->explain;
	c->timing = h->timing;
	c->token_ids = h->token_ids;
	c->pinned = gw_hints_pinned(h);
	c->expected_output_tokens = h->expected_output_tokens;
	c->lease_ms = h->lease_ms != 0 && h->lease_ms < c->t->opt->lease_ms ? h->lease_ms
									    : c->t->opt->lease_ms;
	memcpy(c->lora, h->lora, sizeof(c->lora));
	memcpy(c->ns, h->ns, sizeof(c->ns));
	if (!h->any)
		return 0;
	c->hints = kvr_client_hints_create();
	if (c->hints == NULL || gw_hints_list(h, c->hints) != 0) {
		snprintf(err, errlen, "a routing hint is invalid");
		return -EINVAL;
	}
	return 0;
}

static struct gw_call *create_call(struct gw_thread *t, h2o_req_t *req)
{
	struct gw_call *c = calloc(1, sizeof(*c)), **holder;

	if (c == NULL)
		return NULL;
	c->t = t;
	c->req = req;
	holder = h2o_mem_alloc_shared(&req->pool, sizeof(*holder), on_dispose);
	*holder = c;
	LIST_INSERT_HEAD(&t->calls, c, link);
	GW_COUNT(t, GW_REQUESTS);
	gw_retry_earn(t);
	kvr_stats_add(t->row, GW_IN_FLIGHT, 1);
	kvr_stats_add(t->row, GW_BYTES_IN, req->entity.len);
	gw_conn_enter(c);
	return c;
}

void gw_call_begin(struct gw_thread *t, h2o_req_t *req, enum gw_path path)
{
	struct gw_call *c = create_call(t, req);
	static __thread struct gw_hints hints;
	enum gw_fault room;
	char err[256] = "";
	int rc;

	if (c == NULL) {
		gw_answer_plain_error(req, GW_OUT_OF_MEMORY, NULL);
		return;
	}
	if (gw_conn_is_half_closed(c)) {
		gw_call_half_closed(c);
		return;
	}
	if (kvr_stats_get(t->row, GW_IN_FLIGHT) > t->opt->in_flight || gw_conn_floods(c) ||
	    (path == GW_PICK && gw_leases_full(t))) {
		GW_COUNT(t, GW_OVERLOADED);
		fail_call(c, GW_TOO_MANY, NULL);
		return;
	}
	room = gw_budget_take(c, GW_BUDGET_NEW);
	if (room != GW_FAULTS) {
		fail_call(c, room, NULL);
		return;
	}
	memset(&hints, 0, sizeof(hints));
	rc = gw_ask_read(&c->ask, path, req->entity.base, req->entity.len, &hints, err,
			 sizeof(err));
	if (rc == 0)
		rc = take_hints(c, &hints, err, sizeof(err));
	if (rc < 0) {
		GW_COUNT(t, GW_BAD_JSON);
		fail_call(c, GW_BAD_REQUEST, err);
		return;
	}
	find_ids(c);
}

static void end_now(struct gw_call *c, enum gw_counter what, enum gw_fault fault)
{
	if (c->req == NULL || c->complete)
		return;
	if (c->question != NULL)
		gw_conversation_cancel(c->question);
	c->question = NULL;
	count_end(c, what);
	gw_answer_error(c, gw_error_fault(fault), gw_error_text(fault));
	cancel_request(c);
}

void gw_call_half_closed(struct gw_call *c)
{
	end_now(c, GW_GONE, GW_CLIENT_GONE);
}

void gw_calls_end(struct gw_thread *t)
{
	struct gw_call *c;

	LIST_FOREACH (c, &t->calls, link)
		end_now(c, GW_FAILED, GW_STOPPING);
}
