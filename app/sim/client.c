/* SPDX-License-Identifier: BSD-3-Clause */
/* Clients: their requests, and the checks of the answers. */
#include "sim.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "kvr_client_hints.h"
#include "kvr_client_on.h"

#define ANSWER_MS 20000u /* time limit of a request */
#define HEARS_NS  (5 * SIM_S)

/* ---- answers ---- */

static struct sim_request *request_of(struct sim *s, void *user)
{
	return &s->request[(uintptr_t)user];
}

static struct sim *the_sim; /* a callback has one user word, and the request's number takes it */

static void on_item(struct kvr_client *c, uint64_t id, const struct kvr_client_item *it, void *user)
{
	struct sim *s = the_sim;
	struct sim_request *a = request_of(s, user);
	struct item_body b;
	uint32_t wrong;

	RTE_SET_USED(c);
	RTE_SET_USED(id);
	sim_digest(s, (uint64_t)(uintptr_t)user << 32 | it->seq, it->flags);
	if (a->over)
		sim_fail(s, "request %td: an item after its end", a - s->request);
	if (it->seq != a->got)
		sim_fail(s, "request %td: item %u arrived instead of item %u", a - s->request,
			 it->seq, a->got);
	a->got++;
	if (it->len < sizeof(b)) {
		/* The router's own item, in place of one that the engine can no longer send. */
		const bool folded = it->len == 0 && it->seq + 1 < a->items &&
				    request_is_folded(s, (uint32_t)(a - s->request));

		if ((it->flags & KVR_CLIENT_ITEM_ERROR) == 0 && !folded)
			sim_fail(s, "request %td: item %u has %u bytes", a - s->request, it->seq,
				 it->len);
		return;
	}
	memcpy(&b, it->data, sizeof(b));
	if (b.request != (uint32_t)(a - s->request) || b.no != it->seq ||
	    b.execution >= s->n_executions)
		sim_fail(s, "request %td: item %u is marked as item %u of request %u",
			 a - s->request, it->seq, b.no, b.request);
	else if (a->execution != 0 && a->execution != b.execution + 1)
		sim_fail(s, "request %td: item %u is of execution %u, earlier items are of %u",
			 a - s->request, it->seq, b.execution, a->execution - 1);
	else
		a->execution = b.execution + 1;
	wrong = body_wrong(b.request, it->data, sizeof(b), it->len);
	if (wrong != it->len)
		sim_fail(s, "request %u: byte %u of item %u is wrong", b.request, wrong, b.no);
}

bool client_plan_is_harmless(const struct sim *s)
{
	const struct sim_plan drawn = s->plan;
	const uint32_t bad = drawn.loss + drawn.copies + drawn.late + drawn.broken + drawn.cuts +
			     drawn.clogs + drawn.router_kills + drawn.engine_kills +
			     drawn.engine_leaves + drawn.engine_pauses + drawn.engine_moves +
			     drawn.client_kills + drawn.client_pauses + drawn.router_pauses +
			     drawn.stalls + drawn.small_router + drawn.bug_mute + drawn.bug_error +
			     drawn.bug_refuse + drawn.queueing + drawn.sessions + drawn.jitter_us +
			     drawn.router_stops + drawn.pairs + drawn.sites + drawn.engine_drains +
			     drawn.agent_kills;

	return bad == 0;
}

/* Try another router, as a client with two routers does. */
static void try_elsewhere(struct sim *s, const struct sim_request *a,
			  const struct kvr_client_end *e)
{
	struct client *c = &s->client[a->client];
	const bool worth = e->reason == KVR_CLIENT_LOST || e->reason == KVR_CLIENT_SILENT ||
			   (e->reason == KVR_CLIENT_REJECTED && e->code == KVR_E_SHUTDOWN);

	if (s->plan.routers > 1 && worth && a->got == 0 && !a->cancelled && !a->probe &&
	    a->attempts + 1 < SIM_ATTEMPTS && c->n_retries < SIM_RETRIES)
		c->retries[c->n_retries++] = (uint32_t)(a - s->request);
}

/* The client gave up after 15 s of silence, although all peers were healthy for HEARS_NS and the
 * client probes every 2 s. A router that is small on purpose may lack room for a long message all
 * that time. */
static void check_silence(struct sim *s, const struct sim_request *a)
{
	if (s->phase == PHASE_HEALED && s->plan.small_router == 0 &&
	    s->now_ns - s->phase_ns > HEARS_NS)
		sim_fail(s,
			 "request %td: no answer, although all peers have been healthy for %" PRIu64
			 " ms",
			 a - s->request, (s->now_ns - s->phase_ns) / SIM_MS);
}

/* The router takes no message of this size, and had not reported its limit before this request. */
static bool exceeds_limits(const struct sim *s, const struct kvr_client_end *e)
{
	return s->plan.small_router && e->reason == KVR_CLIENT_REJECTED &&
	       e->code == KVR_E_TOO_LARGE;
}

static void on_end(struct kvr_client *c, uint64_t id, const struct kvr_client_end *e, void *user)
{
	struct sim *s = the_sim;
	struct sim_request *a = request_of(s, user);

	RTE_SET_USED(c);
	RTE_SET_USED(id);
	sim_digest(s, (uint64_t)(uintptr_t)user << 32 | 0xffff, e->reason);
	a->outcomes++;
	a->over = true;
	a->reason = e->reason;
	s->ends[e->reason % RTE_DIM(s->ends)]++;
	if (s->verbose && e->reason != KVR_CLIENT_FINISHED)
		sim_log(s, "request %td of client %u ends: reason %u code %u %s, %u items",
			a - s->request, a->client, e->reason, e->code,
			e->text != NULL ? e->text : "", e->items);
	if (a->outcomes != 1)
		sim_fail(s, "request %td: it has outcome number %u", a - s->request, a->outcomes);
	if (e->reason == KVR_CLIENT_FINISHED && (a->execution == 0 || a->got != a->items ||
						 s->execution[a->execution - 1].made != a->items))
		sim_fail(s, "request %td: it finished with %u items of %u", a - s->request, a->got,
			 a->items);
	if (a->killed)
		return;
	if (e->reason == KVR_CLIENT_SILENT)
		check_silence(s, a);
	try_elsewhere(s, a, e);
	if (e->reason != KVR_CLIENT_FINISHED && !exceeds_limits(s, e) &&
	    (a->probe ||
	     (client_plan_is_harmless(s) && s->plan.engine_fails == 0 && !a->cancelled)))
		sim_fail(s, "request %td: it ended with reason %u, code %u (%s) without a fault",
			 a - s->request, e->reason, e->code, e->text != NULL ? e->text : "");
}

/* ---- requests ---- */

/* A new request, or another attempt of request @p again (UINT32_MAX: none). */
static struct sim_request *new_request(struct sim *s, uint32_t i, uint32_t again)
{
	struct client *c = &s->client[i];
	struct kvr_rand *r = &c->rand;
	struct sim_request *a;

	if (s->n_requests == s->cap_requests) {
		s->cap_requests = s->cap_requests != 0 ? 2 * s->cap_requests : 256;
		s->request = realloc(s->request, s->cap_requests * sizeof(*s->request));
		if (s->request == NULL)
			abort();
	}
	a = &s->request[s->n_requests++];
	*a = (struct sim_request){.client = i,
				  .incarnation = c->incarnation,
				  .n_tokens = 1 + kvr_rand_below(r, SIM_PROMPT * SIM_BLOCK - 1),
				  .items = 1 + kvr_rand_below(r, 12),
				  .item_us = 200 + kvr_rand_below(r, 30000),
				  .body_len = sizeof(struct item_body) + kvr_rand_below(r, 300),
				  .prompt = kvr_rand_below(r, SIM_PROMPTS),
				  .sent_ns = s->now_ns,
				  .cancel_ns = SIM_NEVER};
	if (sim_chance(r, s->plan.large))
		a->body_len = 1000 + kvr_rand_below(r, 40000);
	if (again != UINT32_MAX) {
		a->attempts = s->request[again].attempts + 1;
		a->n_tokens = s->request[again].n_tokens;
		a->items = s->request[again].items;
		a->body_len = s->request[again].body_len;
		a->prompt = s->request[again].prompt;
	}
	return a;
}

static void add_session(struct sim *s, uint32_t i, struct kvr_client_hints *h)
{
	struct kvr_rand *r = &s->client[i].rand;
	const enum kvr_client_session what = (enum kvr_client_session)kvr_rand_below(r, 3);
	char id[32];

	snprintf(id, sizeof(id), "s%u-%u", i, kvr_rand_below(r, 4));
	kvr_client_hint_session(h, id, what,
				what == KVR_CLIENT_SESSION_OPEN ? 1 + kvr_rand_below(r, 8) : 0);
}

/* Draw the form of a request: tokens or hashes, direct or relayed, with a session or without. */
static struct kvr_client_hints *draw_way(struct sim *s, const struct sim_request *a,
					 struct kvr_client_request *q, uint32_t *tokens)
{
	struct kvr_rand *r = &s->client[a->client].rand;
	struct kvr_client_hints *h = NULL;

	if (sim_chance(r, s->plan.tokens)) {
		prompt_tokens(s, a->prompt, tokens, a->n_tokens);
		q->tokens = tokens;
		q->n_tokens = a->n_tokens;
	} else {
		q->n_hashes = a->n_tokens / SIM_BLOCK;
		q->hashes = q->n_hashes != 0 ? prompt_hashes(s, a->prompt) : NULL;
	}
	if (sim_chance(r, s->plan.directs))
		q->flags |= KVR_CLIENT_DIRECT;
	/* A separate random number, so that older seeds still draw the same values. */
	if (kvr_mix64(s->plan.seed ^ ~(uint64_t)(a - s->request)) % 1000 < s->plan.quiets)
		q->flags |= KVR_CLIENT_QUIET;
	if (!a->probe && sim_chance(r, s->plan.sessions) && (h = kvr_client_hints_create()) != NULL)
		add_session(s, a->client, h);
	q->hints = h;
	return h;
}

/* @return whether the client library accepted it. */
static bool submit_request(struct sim *s, uint32_t i, uint32_t router, bool probe, uint32_t again)
{
	static const struct kvr_client_ops ops = {.on_item = on_item, .on_end = on_end};
	struct client *c = &s->client[i];
	struct sim_request *a = new_request(s, i, again);
	uint32_t tokens[SIM_PROMPT * SIM_BLOCK];
	uint8_t *body = malloc(a->body_len);
	struct kvr_client_hints *h;
	struct kvr_client_request q = {.pool = SIM_POOL,
				       .isl = a->n_tokens,
				       .request_ms = ANSWER_MS,
				       .body = body,
				       .body_len = a->body_len,
				       .ops = &ops,
				       .user = (void *)(uintptr_t)(s->n_requests - 1)};
	int rc;

	body_fill(s->n_requests - 1, body, 0, a->body_len);
	memcpy(body, &(const struct item_body){.request = s->n_requests - 1, .of = a->items},
	       sizeof(struct item_body));
	a->probe = probe;
	a->router = router;
	h = draw_way(s, a, &q, tokens);
	if (!probe && sim_chance(&c->rand, s->plan.cancels)) {
		a->cancel_ns = s->now_ns + kvr_rand_below(&c->rand, 500) * SIM_MS;
		c->next_cancel_ns = RTE_MIN(c->next_cancel_ns, a->cancel_ns);
	}
	rc = kvr_client_submit(c->client[router], &q, &a->id);
	a->source = kvr_client_source(c->client[router]);
	kvr_client_hints_destroy(h);
	free(body);
	if ((rc == -EBUSY && !probe) || (rc == -EMSGSIZE && s->plan.small_router))
		s->n_requests--; /* the client is at its limit of requests, or the router takes no
				message of this size */
	else if (rc < 0)
		sim_fail(s, "client %u: submit: %s", i, strerror(-rc));
	c->node[router]->due_ns = s->now_ns;
	return rc == 0;
}

void client_send_probe(struct sim *s, uint32_t i, uint32_t router)
{
	submit_request(s, i, router, true, UINT32_MAX);
}

static void cancel_some(struct sim *s, uint32_t i)
{
	struct client *c = &s->client[i];

	c->next_cancel_ns = SIM_NEVER;
	for (uint32_t k = s->n_requests > 2000 ? s->n_requests - 2000 : 0; k < s->n_requests; k++) {
		struct sim_request *a = &s->request[k];

		if (a->client != i || a->cancel_ns == SIM_NEVER || a->over ||
		    a->incarnation != c->incarnation)
			continue;
		if (a->cancel_ns > s->now_ns) {
			c->next_cancel_ns = RTE_MIN(c->next_cancel_ns, a->cancel_ns);
			continue;
		}
		a->cancel_ns = SIM_NEVER;
		a->cancelled = true;
		kvr_client_cancel(c->client[a->router], a->id);
		c->node[a->router]->due_ns = s->now_ns;
	}
}

/* ---- start and end ---- */

static int library_begin(struct sim *s, uint32_t i, uint32_t router)
{
	const struct kvr_client_conf conf = {.max_requests = 128};
	struct client *c = &s->client[i];
	struct node *n = &s->node[sim_client_node(s, i, router)];
	const struct kvr_udp w = node_world(n);

	c->node[router] = n;
	node_rename(n);
	c->client[router] = kvr_client__create_on(&conf, &s->node[router].addr, &w);
	if (c->client[router] == NULL)
		return -errno;
	kvr_client_connect(c->client[router]);
	n->up = true;
	n->due_ns = s->now_ns;
	return 0;
}

int client_start(struct sim *s, uint32_t i)
{
	struct client *c = &s->client[i];
	int rc = 0;

	the_sim = s;
	if (c->incarnation++ == 0)
		kvr_rand_init(&c->rand, kvr_mix64(s->plan.seed + 0x1000000 * (i + 1)));
	c->up = true;
	c->n_retries = 0;
	c->next_cancel_ns = SIM_NEVER;
	for (uint32_t r = 0; r < s->plan.routers && rc == 0; r++)
		rc = library_begin(s, i, r);
	c->next_send_ns = s->now_ns + (1000 + kvr_rand_below(&c->rand, 1000)) * SIM_MS;
	return rc;
}

static void library_end(struct client *c, uint32_t router, bool quietly)
{
	struct node *n = c->node[router];

	n->mute = quietly;
	kvr_client_destroy(c->client[router]);
	c->client[router] = NULL;
	n->mute = n->up = false;
	n->due_ns = SIM_NEVER;
	node_drop(n);
}

void client_end(struct sim *s, uint32_t i, bool quietly)
{
	struct client *c = &s->client[i];

	if (!c->up)
		return;
	for (uint32_t k = 0; k < s->n_requests; k++)
		if (s->request[k].client == i && !s->request[k].over)
			s->request[k].killed = true;
	for (uint32_t r = 0; r < s->plan.routers; r++)
		if (c->client[r] != NULL)
			library_end(c, r, quietly);
	c->up = false;
	c->n_retries = 0;
}

void client_suspend(struct sim *s, uint32_t i, uint64_t until_ns)
{
	for (uint32_t r = 0; r < s->plan.routers; r++)
		s->node[sim_client_node(s, i, r)].paused_until_ns = until_ns;
}

static bool send_requests(const struct sim *s)
{
	return s->phase == PHASE_FAULTS;
}

uint64_t client_due_ns(const struct sim *s, uint32_t i)
{
	const struct client *c = &s->client[i];
	uint64_t at = c->next_cancel_ns;

	if (!c->up)
		return SIM_NEVER;
	if (send_requests(s))
		at = RTE_MIN(at, c->next_send_ns);
	if (c->n_retries != 0)
		at = s->now_ns;
	for (uint32_t r = 0; r < s->plan.routers; r++)
		at = RTE_MIN(at, c->node[r]->due_ns);
	return RTE_MAX(at, c->node[0]->paused_until_ns);
}

static void library_run(struct sim *s, struct node *n, struct kvr_client *c)
{
	uint64_t due;

	kvr_client_process(c);
	due = kvr_client__due_us(c);
	n->due_ns = due == UINT64_MAX ? SIM_NEVER : RTE_MAX(due * 1000, s->now_ns + 1000);
	if (!STAILQ_EMPTY(&n->rx))
		n->due_ns = s->now_ns + 1000;
}

/* Send requests that failed at one router to the other one. */
static void retry_elsewhere(struct sim *s, uint32_t i)
{
	struct client *c = &s->client[i];
	const uint32_t again = c->retries[--c->n_retries];

	if (submit_request(s, i, (s->request[again].router + 1) % s->plan.routers, false, again))
		s->retries++;
}

void client_run(struct sim *s, uint32_t i)
{
	struct client *c = &s->client[i];

	if (send_requests(s) && c->next_send_ns <= s->now_ns) {
		submit_request(s, i,
			       s->plan.routers > 1 ? kvr_rand_below(&c->rand, s->plan.routers) : 0,
			       false, UINT32_MAX);
		c->next_send_ns = s->now_ns +
				  kvr_rand_below(&c->rand, 2000000 / s->plan.rate) * UINT64_C(1000);
		if (s->plan.pause != 0)
			c->next_send_ns += kvr_rand_below(&c->rand, 1000 * s->plan.pause) * SIM_MS;
	}
	if (c->n_retries != 0)
		retry_elsewhere(s, i);
	if (c->next_cancel_ns <= s->now_ns)
		cancel_some(s, i);
	for (uint32_t r = 0; r < s->plan.routers; r++)
		if (c->node[r]->due_ns <= s->now_ns)
			library_run(s, c->node[r], c->client[r]);
}

uint32_t clients_waiting(const struct sim *s)
{
	uint32_t n = 0;

	for (uint32_t i = 0; i < s->plan.clients; i++) {
		n += s->client[i].n_retries;
		for (uint32_t r = 0; r < s->plan.routers && s->client[i].up; r++)
			n += kvr_client_in_flight(s->client[i].client[r]);
	}
	return n;
}
