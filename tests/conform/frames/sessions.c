/* SPDX-License-Identifier: BSD-3-Clause */
/* Bindings of sessions: what changed since the last look, as lines. */
#include "frames.h"

#include <stdlib.h>
#include <string.h>
#include <sys/queue.h>

/* Where a request has unbound a session: its worker is told when that request ends, unless the
 * session is bound there again. */
struct closing {
	SLIST_ENTRY(closing) link;
	const struct kvr_sc_req *by;
	struct kvr_session_binding at;
	bool ended; /* since the last look */
};

/* A session that some request has named. */
struct named {
	struct named *next;
	struct kvr_sc_pool *pool;
	struct kvr_session_binding to;
	SLIST_HEAD(, closing) closings;
	const struct kvr_sc_req *closer; /* the first since the last look */
	uint64_t until;			 /* bound: it is not over before */
	uint64_t moved_from;		 /* worker that is told so */
	uint64_t dropped_from;		 /* worker that may have opened it for nobody */
	bool bound, moved, dropped;
	bool left;	 /* at the last look there was time left */
	bool opened;	 /* since the last look */
	bool was_opened; /* bound: by an open, not by affinity */
	uint32_t len;
	char id[KVR_SESSION_ID_MAX];
};

static struct named *all, **last = &all;

static struct named *find(const struct kvr_sc_pool *pool, const char *id, uint32_t len)
{
	struct named *s = all;

	while (s != NULL && (s->pool != pool || s->len != len || memcmp(s->id, id, len) != 0))
		s = s->next;
	return s;
}

void frames_session_named(struct kvr_sc_pool *pool, const char *id, uint32_t len)
{
	struct named *s;

	if (find(pool, id, len) != NULL)
		return;
	s = calloc(1, sizeof(*s));
	s->pool = pool;
	s->len = len;
	memcpy(s->id, id, len);
	*last = s;
	last = &s->next;
}

static void line(const struct named *s, const struct kvr_session_binding *to, uint8_t kind,
		 enum kvr_rq_session_how how)
{
	const struct kvr_rq_order o = {
		.kind = kind, .how = (uint8_t)how, .session = {s->id, s->len, .to = *to}};

	kvr_sc_line_session(s->pool->world, NULL, &o);
}

void frames_session_opened(struct kvr_sc_pool *pool, const struct kvr_sc_req *r)
{
	struct named *s = find(pool, r->session.id, r->session.id_len);

	s->opened = true;
	s->moved = s->bound && s->to.worker != r->r.leg[KVR_LEG_MAIN].worker;
	s->moved_from = s->to.worker;
}

void frames_session_dropped(struct kvr_sc_pool *pool, const struct kvr_sc_req *r)
{
	struct named *s = find(pool, r->session.id, r->session.id_len);

	/* Not closed where it has been opened before. */
	s->dropped = !s->bound || !s->was_opened || s->to.worker != r->r.leg[KVR_LEG_MAIN].worker;
	s->dropped_from = r->r.leg[KVR_LEG_MAIN].worker;
}

/* ---- closes ------------------------------------------------------------------------------ */

void frames_session_closer(struct kvr_sc_pool *pool, const struct kvr_sc_req *r)
{
	struct named *s = find(pool, r->session.id, r->session.id_len);

	if (s->closer == NULL)
		s->closer = r;
}

/* It is not bound any more, and the request that did it runs. */
static void unbound(struct named *s)
{
	struct closing *c;

	if (!s->was_opened || s->closer == NULL)
		return;
	c = calloc(1, sizeof(*c));
	c->by = s->closer;
	c->at = s->to;
	c->ended = c->by->r.notified == KVR_RQ_OVER;
	SLIST_INSERT_HEAD(&s->closings, c, link);
	s->closer = NULL;
}

void frames_session_closer_over(struct kvr_sc_pool *pool, const struct kvr_sc_req *r)
{
	struct named *s = find(pool, r->session.id, r->session.id_len);
	struct closing *c;

	SLIST_FOREACH (c, &s->closings, link)
		c->ended = c->ended || c->by == r;
}

/* The one at @p worker whose request has ended now, or NULL. */
static struct closing *ended_at(const struct named *s, uint64_t worker)
{
	struct closing *c;

	SLIST_FOREACH (c, &s->closings, link)
		if (c->ended && c->at.worker == worker)
			break;
	return c;
}

static void closing_over(struct named *s, struct closing *c)
{
	SLIST_REMOVE(&s->closings, c, closing, link);
	free(c);
}

/* Of those that were not told nobody will be: the session was bound there again. */
static void closings_over(struct named *s)
{
	struct closing *c, *next;

	for (c = SLIST_FIRST(&s->closings); c != NULL; c = next) {
		next = SLIST_NEXT(c, link);
		if (c->ended)
			closing_over(s, c);
	}
}

bool frames_session_closes(const struct kvr_sc_pool *pool, const char *id, uint32_t len,
			   uint64_t worker)
{
	return ended_at(find(pool, id, len), worker) != NULL;
}

/* A close that is no news for the session, because it has moved or was never bound, has no line. */
void frames_session_closed(struct kvr_sc_pool *pool, const char *id, uint32_t len, uint64_t worker)
{
	struct named *s = find(pool, id, len);
	struct kvr_session_binding to = s->to;
	struct closing *c = ended_at(s, worker);

	if (c != NULL) {
		line(s, &c->at, KVR_RQO_CLOSE, KVR_RQ_CLOSED_BY_CLIENT);
		closing_over(s, c);
	} else if (s->dropped && s->dropped_from == worker) {
		s->dropped = false;
	} else if (s->moved && s->moved_from == worker) {
		s->moved = false;
	} else {
		to.worker = worker;
		line(s, &to, KVR_RQO_CLOSE, KVR_RQ_CLOSED_BY_CLIENT);
	}
}

/* ---- bindings ---------------------------------------------------------------------------- */

static void end_binding(struct named *s, enum kvr_rq_session_how how)
{
	s->bound = false;
	if (how == KVR_RQ_UNBOUND)
		unbound(s);
	line(s, &s->to, KVR_RQO_SESSION, how);
}

/* Write the lines of a binding that is new, was opened again or has moved. A request with BOOK
 * moves an affinity within one turn of the router, so there is no look in between. */
static void look(struct kvr_sc_world *w, struct named *s)
{
	struct peers_binding b;

	s->left = peers_find_binding(frames_pool(s->pool), s->id, s->len, &b);
	if (!s->left)
		return;
	if (s->bound && !s->opened &&
	    (s->to.worker != b.worker || s->to.dp_rank != b.dp_rank || s->to.tag != b.tag))
		end_binding(s, KVR_RQ_UNBOUND);
	if (!s->bound || s->opened) {
		s->bound = true;
		s->to = (struct kvr_session_binding){b.worker, b.dp_rank, b.tag};
		s->was_opened = s->opened;
		line(s, &s->to, KVR_RQO_SESSION, KVR_RQ_BOUND);
	}
	s->opened = false;
	s->until = b.left_ns > UINT64_MAX - w->now ? UINT64_MAX : w->now + b.left_ns;
}

/* The one of a pool that has been over for the longest time, or, if not @p over, will be last. */
static struct named *ended(const struct kvr_sc_pool *pool, uint64_t now, bool over)
{
	struct named *found = NULL;

	for (struct named *s = all; s != NULL; s = s->next)
		if (s->pool == pool && s->bound && !s->left && (!over || now >= s->until) &&
		    (found == NULL || (s->until < found->until) == over))
			found = s;
	return found;
}

/* Those that the router does not hold any more: their time was over, or they have been unbound. */
static void gone(struct kvr_sc_world *w, struct kvr_sc_pool *pool)
{
	static uint64_t over_before[KVR_SC_MAX_POOLS];
	const uint32_t number = frames_pool(pool), held = peers_sessions(number);
	const uint64_t all_over = peers_sessions_over(number);
	uint64_t over = all_over - over_before[number];
	uint32_t bound = 0;

	over_before[number] = all_over;
	for (struct named *s = all; s != NULL; s = s->next)
		bound += s->pool == pool && s->bound;
	for (; bound > held; bound--) {
		struct named *s = ended(pool, w->now, over != 0);

		if (s == NULL)
			return;
		end_binding(s, over != 0 ? KVR_RQ_SESSION_OVER : KVR_RQ_UNBOUND);
		over -= over != 0;
	}
}

void frames_sessions(struct kvr_sc_world *w)
{
	for (struct named *s = all; s != NULL; s = s->next)
		look(w, s);
	for (uint32_t i = 0; i < w->n_pools; i++)
		gone(w, &w->pool[i]);
	for (struct named *s = all; s != NULL; s = s->next) {
		closings_over(s);
		s->closer = NULL;
		s->moved = s->dropped = false; /* nobody was there to be told */
	}
}
