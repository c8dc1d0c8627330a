/* SPDX-License-Identifier: BSD-3-Clause */
#include "pick_lease.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <unistd.h>

#include "answer.h"

#define BUCKETS	   4096u
#define LOOK_MS	   250u
#define ENDED_KEPT 1024u /* names of ended bookings that are distinguished from unknown ones */

struct gw_lease {
	LIST_ENTRY(gw_lease) hash;	/* protected by the lock */
	LIST_ENTRY(gw_lease) of_thread; /* owner thread only */
	STAILQ_ENTRY(gw_lease)
	report_link; /* protected by the lock: it has reports for its owner */
	uint64_t name;
	struct gw_thread *t;
	/* owner thread only */
	struct gw_router *router;
	uint64_t id;
	/* protected by the lock */
	struct gw_lease_report report;
	bool reported;
	uint32_t lease_ms;
	uint64_t until_ms;
};

STAILQ_HEAD(report_list, gw_lease);
LIST_HEAD(lease_list, gw_lease);

struct place {
	struct report_list reports; /* protected by the lock */
	int pipe[2];
	h2o_socket_t *sock;
	struct lease_list own; /* owner thread only */
	uint64_t look_ms;
};

struct gw_leases {
	pthread_mutex_t lock;
	struct lease_list bucket[BUCKETS];
	struct {
		uint64_t name;
		uint16_t code; /* code of the protocol that ended it; 0: its caller */
	} ended[ENDED_KEPT];
	uint32_t n_ended;
	uint32_t n;
	struct place place[];
};

struct gw_leases *gw_leases_create(uint32_t n)
{
	struct gw_leases *l = calloc(1, sizeof(*l) + n * sizeof(l->place[0]));

	if (l == NULL)
		return NULL;
	pthread_mutex_init(&l->lock, NULL);
	l->n = n;
	for (uint32_t i = 0; i < n; i++) {
		STAILQ_INIT(&l->place[i].reports);
		l->place[i].pipe[0] = l->place[i].pipe[1] = -1;
	}
	return l;
}

void gw_leases_destroy(struct gw_leases *l)
{
	if (l == NULL)
		return;
	pthread_mutex_destroy(&l->lock);
	free(l);
}

static struct place *place_of(const struct gw_thread *t)
{
	return &t->leases->place[t->number];
}

/* Requires the lock. */
static struct lease_list *bucket_of(struct gw_leases *l, uint64_t name)
{
	return &l->bucket[name % BUCKETS];
}

static struct gw_lease *find_lease(struct gw_leases *l, uint64_t name)
{
	struct gw_lease *le;

	LIST_FOREACH (le, bucket_of(l, name), hash)
		if (le->name == name)
			return le;
	return NULL;
}

/* ---- owner thread ---- */

bool gw_leases_full(const struct gw_thread *t)
{
	return kvr_stats_get(t->row, GW_LEASES) >= (t->opt->in_flight + 1) / 2;
}

static void forward_report(struct gw_lease *le, const struct gw_lease_report *report)
{
	const struct kvr_client_report r = {.first = report->first,
					    .last = report->last,
					    .failed = report->failed,
					    .generated_tokens = report->generated_tokens,
					    .cached_tokens = report->cached_tokens};

	kvr_client_report(le->router->client, le->id, &r);
}

/* Collect reports received by all threads. */
static void take_reports(struct gw_thread *t)
{
	struct place *p = place_of(t);
	struct gw_leases *l = t->leases;
	struct gw_lease_report report;
	struct gw_lease *le;

	for (;;) {
		pthread_mutex_lock(&l->lock);
		le = STAILQ_FIRST(&p->reports);
		if (le != NULL) {
			STAILQ_REMOVE_HEAD(&p->reports, report_link);
			le->reported = false;
			report = le->report;
		}
		pthread_mutex_unlock(&l->lock);
		if (le == NULL)
			return;
		forward_report(le, &report); /* owned: no other thread frees it */
	}
}

static void on_reports(h2o_socket_t *sock, const char *err)
{
	(void)err;
	h2o_buffer_consume(&sock->input, sock->input->size);
	take_reports(sock->data);
}

int gw_leases_join(struct gw_thread *t)
{
	struct place *p = place_of(t);

	if (pipe2(p->pipe, O_CLOEXEC | O_NONBLOCK) < 0)
		return -errno;
	LIST_INIT(&p->own);
	p->sock = h2o_evloop_socket_create(t->ctx.loop, p->pipe[0], 0);
	p->sock->data = t;
	h2o_socket_read_start(p->sock, on_reports);
	return 0;
}

void gw_leases_leave(struct gw_thread *t)
{
	struct place *p = t->leases != NULL ? place_of(t) : NULL;

	if (p == NULL || p->sock == NULL)
		return;
	h2o_socket_close(p->sock); /* wrapper of pipe[0] */
	close(p->pipe[1]);
	p->sock = NULL;
}

uint64_t gw_lease_begin(struct gw_call *c, uint32_t lease_ms)
{
	struct gw_lease *le = calloc(1, sizeof(*le));
	struct gw_leases *l = c->t->leases;

	if (le == NULL || getrandom(&le->name, sizeof(le->name), 0) < 0) {
		free(le);
		return 0;
	}
	le->name |= 1; /* 0 means none */
	le->t = c->t;
	le->router = c->router;
	le->id = c->id;
	le->lease_ms = lease_ms;
	le->until_ms = gw_now_ms() + lease_ms;
	LIST_INSERT_HEAD(&place_of(c->t)->own, le, of_thread);
	pthread_mutex_lock(&l->lock);
	LIST_INSERT_HEAD(bucket_of(l, le->name), le, hash);
	pthread_mutex_unlock(&l->lock);
	c->at_router->lease = le;
	c->at_router->call = NULL;
	c->at_router = NULL;
	c->id = 0;
	kvr_stats_add(c->t->row, GW_LEASES, 1);
	return le->name;
}

void gw_lease_ended(struct gw_lease *le, const struct kvr_client_end *e)
{
	struct gw_leases *l = le->t->leases;
	const bool lost = e->reason != KVR_CLIENT_FINISHED && e->reason != KVR_CLIENT_CANCELLED;

	pthread_mutex_lock(&l->lock);
	LIST_REMOVE(le, hash);
	if (le->reported)
		STAILQ_REMOVE(&place_of(le->t)->reports, le, gw_lease, report_link);
	l->ended[l->n_ended % ENDED_KEPT].name = le->name;
	l->ended[l->n_ended++ % ENDED_KEPT].code = e->code != 0 ? e->code
						   : lost	? KVR_E_UNKNOWN_REQUEST
								: 0;
	pthread_mutex_unlock(&l->lock);
	if (lost)
		GW_COUNT(le->t, GW_LEASES_LOST);
	kvr_stats_sub(le->t->row, GW_LEASES, 1);
	LIST_REMOVE(le, of_thread);
	free(le);
}

void gw_leases_turn(struct gw_thread *t)
{
	struct place *p = place_of(t);
	struct gw_lease *le, *next;
	const uint64_t now = gw_now_ms();

	if (now < p->look_ms)
		return;
	p->look_ms = now + LOOK_MS;
	for (le = LIST_FIRST(&p->own); le != NULL; le = next) {
		bool over;

		next = LIST_NEXT(le, of_thread);
		pthread_mutex_lock(&t->leases->lock);
		over = !le->report.last && le->until_ms != 0 && now >= le->until_ms;
		if (over)
			le->until_ms = 0; /* once */
		pthread_mutex_unlock(&t->leases->lock);
		if (!over)
			continue;
		GW_COUNT(t, GW_LEASES_OVER);
		kvr_client_cancel(le->router->client, le->id);
	}
}

/* ---- any thread: reports of callers ---- */

enum report_kind { REPORT_NOTHING, REPORT_FIRST, REPORT_PROGRESS, REPORT_END };

/* Parse /pick/NAME/VERB. @return REPORT_NOTHING: another path. */
static enum report_kind read_path(const h2o_req_t *req, uint64_t *name)
{
	static const char *const verbs[] = {[REPORT_FIRST] = "first_token",
					    [REPORT_PROGRESS] = "progress",
					    [REPORT_END] = "end"};
	const char *p = req->path_normalized.base + strlen("/pick/");
	size_t left = req->path_normalized.len - strlen("/pick/");
	char text[17], *end;

	if (left < 18 || p[16] != '/')
		return REPORT_NOTHING;
	snprintf(text, sizeof(text), "%.16s", p);
	*name = strtoull(text, &end, 16);
	if (*end != '\0' || strspn(text, "0123456789abcdef") != 16)
		return REPORT_NOTHING;
	for (enum report_kind s = REPORT_FIRST; s <= REPORT_END; s++)
		if (h2o_memis(p + 17, left - 17, verbs[s], strlen(verbs[s])))
			return s;
	return REPORT_NOTHING;
}

static bool read_count(const struct kvr_json_value *v, uint32_t *out)
{
	uint64_t n;

	if (v->type == KVR_JSON_NONE || v->type == KVR_JSON_NULL)
		return true;
	if (kvr_json_u64(v, &n) != 0 || n >= UINT32_MAX)
		return false;
	*out = (uint32_t)n;
	return true;
}

/* Parse the body, which may be empty. */
static bool read_report(const h2o_req_t *req, enum report_kind kind, struct gw_lease_report *s)
{
	static const char *const names[] = {"generated_tokens", "cached_tokens", "failed"};
	struct kvr_json_value root, v[3];
	size_t at;

	*s = (struct gw_lease_report){.first = true, .last = kind == REPORT_END};
	if (req->entity.len == 0)
		return true;
	if (kvr_json_parse(req->entity.base, req->entity.len, &root, &at) != 0 ||
	    root.type != KVR_JSON_OBJECT)
		return false;
	kvr_json_members(&root, names, 3, v);
	return read_count(&v[0], &s->generated_tokens) && read_count(&v[1], &s->cached_tokens) &&
	       (v[2].type == KVR_JSON_NONE || kvr_json_bool(&v[2], &s->failed) == 0);
}

/* Store a report. @return 0: stored; 1: the booking ended with *code; -1: unknown. */
static int store_report(struct gw_thread *t, uint64_t name, const struct gw_lease_report *s,
			uint16_t *code)
{
	struct gw_leases *l = t->leases;
	struct gw_lease *le;
	int rc = -1, wake = -1;

	pthread_mutex_lock(&l->lock);
	le = find_lease(l, name);
	if (le != NULL && le->until_ms != 0) {
		rc = le->report.last ? 1 : 0;
		*code = 0;
	}
	for (uint32_t i = 0; rc < 0 && i < ENDED_KEPT; i++)
		if (l->ended[i].name == name) {
			rc = 1;
			*code = l->ended[i].code;
		}
	if (rc == 0) {
		const uint32_t tokens = le->report.generated_tokens;
		const uint32_t cached = le->report.cached_tokens;

		le->report = *s;
		if (le->report.cached_tokens == 0)
			le->report.cached_tokens = cached;
		if (le->report.generated_tokens < tokens)
			le->report.generated_tokens = tokens;
		le->until_ms = gw_now_ms() + le->lease_ms;
		if (!le->reported)
			STAILQ_INSERT_TAIL(&l->place[le->t->number].reports, le, report_link);
		le->reported = true;
		if (le->t != t)
			wake = l->place[le->t->number].pipe[1];
		/* A full pipe has already woken the owner. */
		if (wake >= 0 && write(wake, "", 1) < 0)
			wake = -1;
	}
	pthread_mutex_unlock(&l->lock);
	if (rc == 0)
		take_reports(t);
	return rc;
}

void gw_lease_request(struct gw_thread *t, h2o_req_t *req)
{
	struct gw_lease_report s;
	uint64_t name = 0;
	uint16_t code = 0;
	char text[160];
	const enum report_kind kind = read_path(req, &name);
	int rc;

	if (kind == REPORT_NOTHING) {
		gw_answer_plain_error(req, GW_NO_ROUTE, NULL);
		return;
	}
	if (!read_report(req, kind, &s)) {
		GW_COUNT(t, GW_BAD_JSON);
		gw_answer_plain_error(
			req, GW_BAD_REQUEST,
			"an object with generated_tokens, cached_tokens and failed is expected, or nothing");
		return;
	}
	rc = name != 0 ? store_report(t, name, &s, &code) : -1; /* never the name of a booking */
	if (rc == 0) {
		GW_COUNT(t, GW_LEASE_CALLS);
		gw_answer_page(req, 200, "application/json", "{\"status\":\"ok\"}", 15);
	} else if (rc == 1 && code == 0 && kind == REPORT_END) {
		/* Repeated: the first answer may have been lost. */
		gw_answer_page(req, 200, "application/json", "{\"status\":\"ended\"}", 18);
	} else if (rc == 1) {
		snprintf(text, sizeof(text), "the booking has ended: %s",
			 code == 0 ? "by its caller, or its lease expired" : kvr_code_name(code));
		gw_answer_plain_error(req, GW_LEASE_GONE, text);
	} else {
		gw_answer_plain_error(req, GW_NO_LEASE, NULL);
	}
}
