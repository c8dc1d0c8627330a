/* SPDX-License-Identifier: BSD-3-Clause */
#include "call.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "again.h"
#include "answer.h"
#include "choice.h"
#include "conn.h"
#include "lease.h"
#include "message.h"
#include "room.h"
#include "source.h"

static void send_to_router(struct gw_call *c);

static void count(struct gw_call *c, enum gw_counter what)
{
	if (c->counted)
		return;
	c->counted = true;
	GW_COUNT(c->t, what);
	kvr_stats_sub(c->t->row, GW_IN_FLIGHT, 1);
}

static void release(struct gw_call *c)
{
	if (c->req != NULL || c->id != 0 || c->question != NULL)
		return;
	LIST_REMOVE(c, link);
	gw_room_leave(c);
	kvr_client_hints_destroy(c->hints);
	gw_answer_free(c);
	free(c->ids);
	free(c->why_text);
	free(c);
}

static void fail(struct gw_call *c, enum gw_fault fault, const char *text)
{
	const struct gw_error *e = gw_error_fault(fault);

	count(c, e->status < 499 ? GW_REFUSED : GW_FAILED);
	gw_answer_error(c, e, text != NULL ? text : gw_error_text(fault));
}

/* libh2o lets go of the request: it has been answered, or the client has gone. */
static void on_dispose(void *holder)
{
	struct gw_call *c = *(struct gw_call **)holder;

	gw_conn_leave(c);
	c->req = NULL;
	if (c->question != NULL)
		gw_talk_cancel(c->question);
	c->question = NULL;
	if (c->id != 0)
		kvr_client_cancel(c->router->client, c->id);
	count(c, GW_GONE); /* unless it is counted */
	release(c);
}

/* --- the router's side ---------------------------------------------------------------------- */

static void stop(struct gw_call *c)
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
		fail(c, GW_OUT_OF_MEMORY, NULL);
		stop(c);
		return;
	}
	GW_COUNT(c->t, GW_PICKED);
	count(c, GW_ANSWERED);
	gw_answer_pick(c, name);
}

static void on_loads(struct kvr_client *client, uint64_t id, const struct kvr_client_loads *loads,
		     void *user)
{
	struct gw_call *c = ((struct gw_try *)user)->call;

	if (c == NULL || c->req == NULL || c->complete)
		return;
	count(c, GW_ANSWERED);
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
		room = gw_room_take(c, GW_ROOM_GROWS);
	if (room != GW_FAULTS) {
		fail(c, room, NULL);
		stop(c);
	}
	if (rc == 0)
		return;
	if (rc == -EBADMSG)
		GW_COUNT(c->t, GW_BAD_ANSWERS);
	if (rc == -ENOBUFS)
		GW_COUNT(c->t, GW_SLOW_READERS);
	fail(c,
	     rc == -EBADMSG   ? GW_ENGINE_GARBAGE
	     : rc == -ENOBUFS ? GW_READER_TOO_SLOW
			      : GW_OUT_OF_MEMORY,
	     NULL);
	stop(c);
}

static void finished(struct gw_call *c)
{
	if (gw_answer_end(c) == 0) {
		count(c, GW_ANSWERED);
		return;
	}
	GW_COUNT(c->t, GW_BAD_ANSWERS);
	fail(c, GW_ENGINE_GARBAGE, NULL);
}

/* An engine's own words about it are better than ours. */
static void failed(struct gw_call *c, const struct kvr_client_end *e)
{
	char text[512];
	const struct gw_error error = gw_again_error(c, e, text, sizeof(text));

	if (gw_answer_kept(c)) {
		finished(c);
		return;
	}
	count(c, error.status < 499 ? GW_REFUSED : GW_FAILED);
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
		return; /* it went on elsewhere, or is a booking */
	c->id = 0;
	c->at_router = NULL;
	if (c->req == NULL || c->complete) {
		release(c);
		return;
	}
	if (gw_router_ended(c->router, e, gw_again(c, e))) {
		GW_COUNT(c->t, GW_RESUBMITTED);
		if (gw_again_elsewhere(c, e)) {
			GW_COUNT(c->t, GW_RETRIES);
			gw_again_leave(c, e);
		} else if (gw_again_no_bodies(c, e)) {
			c->through = true;
			c->not_taken = e->reason == KVR_CLIENT_FAILED || e->detail[0] == 408;
		} else if (e->reason != KVR_CLIENT_LOST) {
			c->tried |= gw_router_bit(c->router);
		}
		send_to_router(c);
	} else if (e->reason == KVR_CLIENT_FINISHED) {
		gw_answer_track(c, e->tracker);
		finished(c);
	} else if (e->reason == KVR_CLIENT_QUERIED) {
		count(c, GW_ANSWERED);
		gw_answer_choice(c);
	} else if (e->reason == KVR_CLIENT_FAILED && c->head_done && c->status >= 400) {
		finished(c); /* the engine's own words */
	} else {
		failed(c, e);
	}
	release(c);
}

static const struct kvr_client_ops ops = {
	.on_accepted = on_accepted, .on_item = on_item, .on_loads = on_loads, .on_end = on_end};

static int submit(struct gw_call *c, const struct gw_model *m)
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
	uint64_t *sh = gw_message_hashes(c, m, &q.n_hashes);
	size_t len = 0;
	char *message = NULL;
	int rc = q.user != NULL ? gw_message(c, &message, &len) : -ENOMEM;

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
		fail(c, GW_NO_ROUTER, NULL);
		return;
	}
	if (!gw_router_model(c->router, c->ask.model, &m)) {
		snprintf(text, sizeof(text), "the model '%s' is not served here", c->ask.model);
		fail(c, GW_NO_MODEL, text);
		return;
	}
	if (!gw_again_in_time(c)) {
		fail(c, GW_TIMED_OUT, NULL);
		return;
	}
	c->tries++;
	rc = hint_adapter(c, m.lora);
	if (rc == 0)
		rc = submit(c, &m);
	if (rc == 0)
		return;
	if (rc == -EMSGSIZE && c->not_taken) {
		fail(c, GW_BODY_NOT_TAKEN, NULL);
	} else if (rc == -EMSGSIZE) {
		GW_COUNT(c->t, GW_TOO_LARGE);
		fail(c, GW_BODY_TOO_LARGE, "the request is larger than the router takes");
	} else if (rc == -EINVAL) {
		fail(c, GW_BAD_REQUEST,
		     "a routing hint, their sum, or a header field is not legal");
	} else {
		fail(c,
		     rc == -EBUSY    ? GW_TOO_MANY
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
		c->id = 0; /* what comes of it is not ours any more */
		c->at_router->call = NULL;
		c->at_router = NULL;
		kvr_client_cancel(r->client, id);
		GW_COUNT(c->t, GW_RESUBMITTED);
		send_to_router(c);
	}
}

/* --- the client's side ---------------------------------------------------------------------- */

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

/* The tokenizer is not asked for a request that will be refused. */
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
			fail(c, GW_OUT_OF_MEMORY, NULL);
			return;
		}
		gw_ask_ids(&c->ask, c->ids);
		c->n_ids = c->ask.n_ids;
		send_to_router(c);
		return;
	}
	if (!is_served(c))
		send_to_router(c); /* which says so */
	else if (c->t->talks == NULL || c->ask.form == GW_PROMPT_OPAQUE)
		on_ids(c, NULL, 0);
	else
		c->question =
			gw_talk_ask(c->t->talks, &c->ask, gw_source_name(c->source), on_ids, c);
}

/* Hints of the body and of the headers. @return 0, -EINVAL with @p err. */
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
		snprintf(err, errlen, "a routing hint is not legal");
		return -EINVAL;
	}
	return 0;
}

static struct gw_call *make(struct gw_thread *t, h2o_req_t *req)
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
	gw_again_earn(t);
	kvr_stats_add(t->row, GW_IN_FLIGHT, 1);
	kvr_stats_add(t->row, GW_BYTES_IN, req->entity.len);
	gw_conn_enter(c);
	return c;
}

void gw_call_begin(struct gw_thread *t, h2o_req_t *req, enum gw_path path)
{
	struct gw_call *c = make(t, req);
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
		fail(c, GW_TOO_MANY, NULL);
		return;
	}
	room = gw_room_take(c, GW_ROOM_NEW);
	if (room != GW_FAULTS) {
		fail(c, room, NULL);
		return;
	}
	memset(&hints, 0, sizeof(hints));
	rc = gw_ask_read(&c->ask, path, req->entity.base, req->entity.len, &hints, err,
			 sizeof(err));
	if (rc == 0)
		rc = take_hints(c, &hints, err, sizeof(err));
	if (rc < 0) {
		GW_COUNT(t, GW_BAD_JSON);
		fail(c, GW_BAD_REQUEST, err);
		return;
	}
	find_ids(c);
}

static void end_now(struct gw_call *c, enum gw_counter what, enum gw_fault fault)
{
	if (c->req == NULL || c->complete)
		return;
	if (c->question != NULL)
		gw_talk_cancel(c->question);
	c->question = NULL;
	count(c, what);
	gw_answer_error(c, gw_error_fault(fault), gw_error_text(fault));
	stop(c);
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
