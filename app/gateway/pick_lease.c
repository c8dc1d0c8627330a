/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Bookings of /pick: one table for all threads behind a lock, reports queued for the owner thread,
 * and a pipe per thread that wakes it.
 */
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
	struct gw_thread *thread;
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
	struct gw_leases *leases = calloc(1, sizeof(*leases) + n * sizeof(leases->place[0]));

	if (leases == NULL)
		return NULL;
	pthread_mutex_init(&leases->lock, NULL);
	leases->n = n;
	for (uint32_t i = 0; i < n; i++) {
		STAILQ_INIT(&leases->place[i].reports);
		leases->place[i].pipe[0] = leases->place[i].pipe[1] = -1;
	}
	return leases;
}

void gw_leases_destroy(struct gw_leases *leases)
{
	if (leases == NULL)
		return;
	pthread_mutex_destroy(&leases->lock);
	free(leases);
}

static struct place *place_of(const struct gw_thread *thread)
{
	return &thread->leases->place[thread->number];
}

/* Requires the lock. */
static struct lease_list *bucket_of(struct gw_leases *leases, uint64_t name)
{
	return &leases->bucket[name % BUCKETS];
}

static struct gw_lease *find_lease(struct gw_leases *leases, uint64_t name)
{
	struct gw_lease *lease;

	LIST_FOREACH (lease, bucket_of(leases, name), hash)
		if (lease->name == name)
			return lease;
	return NULL;
}

/* ---- owner thread ---- */

bool gw_leases_full(const struct gw_thread *thread)
{
	return kvr_stats_get(thread->row, GW_LEASES) >= (thread->opt->in_flight + 1) / 2;
}

static void forward_report(struct gw_lease *lease, const struct gw_lease_report *report)
{
	const struct kvr_client_report r = {.first = report->first,
					    .last = report->last,
					    .failed = report->failed,
					    .generated_tokens = report->generated_tokens,
					    .cached_tokens = report->cached_tokens};

	kvr_client_report(lease->router->client, lease->id, &r);
}

/* Collect reports received by all threads. */
static void take_reports(struct gw_thread *thread)
{
	struct place *p = place_of(thread);
	struct gw_leases *leases = thread->leases;
	struct gw_lease_report report;
	struct gw_lease *lease;

	for (;;) {
		pthread_mutex_lock(&leases->lock);
		lease = STAILQ_FIRST(&p->reports);
		if (lease != NULL) {
			STAILQ_REMOVE_HEAD(&p->reports, report_link);
			lease->reported = false;
			report = lease->report;
		}
		pthread_mutex_unlock(&leases->lock);
		if (lease == NULL)
			return;
		forward_report(lease, &report); /* owned: no other thread frees it */
	}
}

static void on_reports(h2o_socket_t *sock, const char *err)
{
	(void)err;
	h2o_buffer_consume(&sock->input, sock->input->size);
	take_reports(sock->data);
}

int gw_leases_join(struct gw_thread *thread)
{
	struct place *p = place_of(thread);

	if (pipe2(p->pipe, O_CLOEXEC | O_NONBLOCK) < 0)
		return -errno;
	LIST_INIT(&p->own);
	p->sock = h2o_evloop_socket_create(thread->ctx.loop, p->pipe[0], 0);
	p->sock->data = thread;
	h2o_socket_read_start(p->sock, on_reports);
	return 0;
}

void gw_leases_leave(struct gw_thread *thread)
{
	struct place *p = thread->leases != NULL ? place_of(thread) : NULL;

	if (p == NULL || p->sock == NULL)
		return;
	h2o_socket_close(p->sock); /* wrapper of pipe[0] */
	close(p->pipe[1]);
	p->sock = NULL;
}

uint64_t gw_lease_begin(struct gw_call *call, uint32_t lease_ms)
{
	struct gw_lease *lease = calloc(1, sizeof(*lease));
	struct gw_leases *leases = call->thread->leases;

	if (lease == NULL || getrandom(&lease->name, sizeof(lease->name), 0) < 0) {
		free(lease);
		return 0;
	}
	lease->name |= 1; /* 0 means none */
	lease->thread = call->thread;
	lease->router = call->router;
	lease->id = call->id;
	lease->lease_ms = lease_ms;
	lease->until_ms = gw_now_ms() + lease_ms;
	LIST_INSERT_HEAD(&place_of(call->thread)->own, lease, of_thread);
	pthread_mutex_lock(&leases->lock);
	LIST_INSERT_HEAD(bucket_of(leases, lease->name), lease, hash);
	pthread_mutex_unlock(&leases->lock);
	call->at_router->lease = lease;
	call->at_router->call = NULL;
	call->at_router = NULL;
	call->id = 0;
	kvr_stats_add(call->thread->row, GW_LEASES, 1);
	return lease->name;
}

void gw_lease_ended(struct gw_lease *lease, const struct kvr_client_end *e)
{
	struct gw_leases *leases = lease->thread->leases;
	const bool lost = e->reason != KVR_CLIENT_FINISHED && e->reason != KVR_CLIENT_CANCELLED;

	pthread_mutex_lock(&leases->lock);
	LIST_REMOVE(lease, hash);
	if (lease->reported)
		STAILQ_REMOVE(&place_of(lease->thread)->reports, lease, gw_lease, report_link);
	leases->ended[leases->n_ended % ENDED_KEPT].name = lease->name;
	leases->ended[leases->n_ended++ % ENDED_KEPT].code = e->code != 0 ? e->code
							     : lost	  ? KVR_E_UNKNOWN_REQUEST
									  : 0;
	pthread_mutex_unlock(&leases->lock);
	if (lost)
		GW_COUNT(lease->thread, GW_LEASES_LOST);
	kvr_stats_sub(lease->thread->row, GW_LEASES, 1);
	LIST_REMOVE(lease, of_thread);
	free(lease);
}

void gw_leases_turn(struct gw_thread *thread)
{
	struct place *p = place_of(thread);
	struct gw_lease *lease, *next;
	const uint64_t now = gw_now_ms();

	if (now < p->look_ms)
		return;
	p->look_ms = now + LOOK_MS;
	for (lease = LIST_FIRST(&p->own); lease != NULL; lease = next) {
		bool over;

		next = LIST_NEXT(lease, of_thread);
		pthread_mutex_lock(&thread->leases->lock);
		over = !lease->report.last && lease->until_ms != 0 && now >= lease->until_ms;
		if (over)
			lease->until_ms = 0; /* once */
		pthread_mutex_unlock(&thread->leases->lock);
		if (!over)
			continue;
		GW_COUNT(thread, GW_LEASES_OVER);
		kvr_client_cancel(lease->router->client, lease->id);
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
static int store_report(struct gw_thread *thread, uint64_t name, const struct gw_lease_report *s,
			uint16_t *code)
{
	struct gw_leases *leases = thread->leases;
	struct gw_lease *lease;
	int rc = -1, wake = -1;

	pthread_mutex_lock(&leases->lock);
	lease = find_lease(leases, name);
	if (lease != NULL && lease->until_ms != 0) {
		rc = lease->report.last ? 1 : 0;
		*code = 0;
	}
	for (uint32_t i = 0; rc < 0 && i < ENDED_KEPT; i++)
		if (leases->ended[i].name == name) {
			rc = 1;
			*code = leases->ended[i].code;
		}
	if (rc == 0) {
		const uint32_t tokens = lease->report.generated_tokens;
		const uint32_t cached = lease->report.cached_tokens;

		lease->report = *s;
		if (lease->report.cached_tokens == 0)
			lease->report.cached_tokens = cached;
		if (lease->report.generated_tokens < tokens)
			lease->report.generated_tokens = tokens;
		lease->until_ms = gw_now_ms() + lease->lease_ms;
		if (!lease->reported)
			STAILQ_INSERT_TAIL(&leases->place[lease->thread->number].reports, lease,
					   report_link);
		lease->reported = true;
		if (lease->thread != thread)
			wake = leases->place[lease->thread->number].pipe[1];
		/* A full pipe has already woken the owner. */
		if (wake >= 0 && write(wake, "", 1) < 0)
			wake = -1;
	}
	pthread_mutex_unlock(&leases->lock);
	if (rc == 0)
		take_reports(thread);
	return rc;
}

void gw_lease_request(struct gw_thread *thread, h2o_req_t *req)
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
		GW_COUNT(thread, GW_BAD_JSON);
		gw_answer_plain_error(
			req, GW_BAD_REQUEST,
			"an object with generated_tokens, cached_tokens and failed is expected, or nothing");
		return;
	}
	rc = name != 0 ? store_report(thread, name, &s, &code)
		       : -1; /* never the name of a booking */
	if (rc == 0) {
		GW_COUNT(thread, GW_LEASE_CALLS);
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
