/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * kvroute-ctl exporter: Prometheus metrics and a web page over HTTP. The main thread takes a sample
 * of the router every few seconds and updates the findings; libmicrohttpd's thread answers. Both
 * use one connection to the telemetry socket, under one lock. The exporter reconnects to a
 * restarted router.
 */
#include <errno.h>
#include <microhttpd.h>
#include <netdb.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "ctl.h"
#include "doctor.h"
#include "history.h"
#include "kvr_metrics.h"
#include "page.h"
#include "reference.h"
#include "sample.h"

#define RING	    6u	 /* samples kept: doctor compares the newest with the oldest */
#define KEEP_S	    60.0 /* a finding stays for this time after it was last true */
#define CONNECTIONS 64u
#define PATIENCE_S  10u

static struct {
	pthread_mutex_t lock; /* protects all members below */
	struct ctl *c;
	json_t *ring[RING]; /* newest first */
	json_t *found;	    /* {"rule where": finding with "at"} */
	struct history history;
	char err[700]; /* why there is no router; "": connected */
} ex = {.lock = PTHREAD_MUTEX_INITIALIZER};

/* ---- samples ---- */

static double read_clock(clockid_t clock)
{
	struct timespec t;

	clock_gettime(clock, &t);
	return (double)t.tv_sec + (double)t.tv_nsec / 1e9;
}

/* Connect unless connected. @return true if connected. */
static bool open_router(void)
{
	const struct ctl_options *o = &ex.c->opt;

	return ex.c->t.fd >= 0 ||
	       tel_open(&ex.c->t, &ex.c->places, o->router[0] != '\0' ? o->router : NULL, ex.err,
			sizeof(ex.err)) == CTL_OK;
}

static void clear_samples(void)
{
	for (unsigned int i = 0; i < RING; i++) {
		json_decref(ex.ring[i]);
		ex.ring[i] = NULL;
	}
}

static void update_findings(void)
{
	const double now = read_clock(CLOCK_MONOTONIC);
	const json_t *oldest = NULL;
	json_t *found, *f;
	const char *key;
	void *next;
	size_t i;

	for (i = 0; i < RING; i++)
		oldest = ex.ring[i] != NULL ? ex.ring[i] : oldest;
	found = doctor_find(oldest, ex.ring[0], ex.c->opt.patience);
	json_array_foreach (found, i, f) {
		char name[200];

		snprintf(name, sizeof(name), "%s %s", json_string_value(json_object_get(f, "rule")),
			 json_string_value(json_object_get(f, "where")));
		json_object_set_new(f, "at", json_real(now));
		json_object_set(ex.found, name, f);
	}
	json_decref(found);
	json_object_foreach_safe(ex.found, next, key,
				 f) if (now - json_real_value(json_object_get(f, "at")) > KEEP_S)
		json_object_del(ex.found, key);
}

static void take_sample(void)
{
	json_t *s;

	pthread_mutex_lock(&ex.lock);
	s = open_router() ? sample_take(&ex.c->t, ex.err, sizeof(ex.err)) : NULL;
	history_add(&ex.history, ex.ring[0], s, read_clock(CLOCK_REALTIME));
	if (s == NULL) {
		clear_samples(); /* the next one may be another router */
	} else {
		ex.err[0] = '\0';
		json_decref(ex.ring[RING - 1]);
		memmove(&ex.ring[1], &ex.ring[0], sizeof(ex.ring[0]) * (RING - 1));
		ex.ring[0] = s;
		update_findings();
	}
	pthread_mutex_unlock(&ex.lock);
}

/* ---- pages ---- */

struct page {
	unsigned int status;
	const char *type;
	char *text; /* from malloc() */
	size_t len;
};

static void write_findings(FILE *out)
{
	kvr_metrics_head("kvr_doctor_findings", "gauge", "Findings of kvroute-ctl doctor, by rule",
			 out);
	for (const struct doctor_rule *r = doctor_rules; r->name != NULL; r++) {
		unsigned int n = 0;
		const char *key;
		json_t *f;

		json_object_foreach (ex.found, key, f)
			n += strcmp(json_string_value(json_object_get(f, "rule")), r->name) == 0;
		fprintf(out, "kvr_doctor_findings{rule=\"%s\"} %u\n", r->name, n);
	}
}

static void set_error(struct page *p)
{
	json_t *e = json_pack("{s:s}", "error", ex.err);

	p->status = MHD_HTTP_SERVICE_UNAVAILABLE;
	p->type = "application/json";
	p->text = json_dumps(e, 0);
	p->len = p->text != NULL ? strlen(p->text) : 0;
	json_decref(e);
}

static void page_metrics(struct page *p)
{
	FILE *out = open_memstream(&p->text, &p->len);
	bool good = out != NULL && open_router() &&
		    tel_copy_metrics(&ex.c->t, out, ex.err, sizeof(ex.err)) == 0;

	if (good) {
		write_findings(out);
		reference_write(ex.ring[0], out);
	}
	if (out != NULL)
		fclose(out);
	p->type = KVR_METRICS_TYPE;
	if (!good) {
		free(p->text);
		set_error(p);
	}
}

/* @return the part of the oldest sample that the page compares with the newest. */
static json_t *older_part(void)
{
	const json_t *was = NULL;

	for (unsigned int i = 1; i < RING; i++)
		was = ex.ring[i] != NULL ? ex.ring[i] : was;
	return was == NULL ? json_null()
			   : json_pack("{s:O, s:O?, s:O?}", "at", json_object_get(was, "at"),
				       "buckets", json_object_get(was, "buckets"), "stages",
				       json_object_get(was, "stages"));
}

static void page_data(struct page *p)
{
	json_t *all, *list, *f;
	const char *key;

	if (ex.ring[0] == NULL) {
		if (ex.err[0] == '\0')
			snprintf(ex.err, sizeof(ex.err), "no sample yet");
		set_error(p);
		return;
	}
	all = json_copy(ex.ring[0]);
	list = json_array();
	json_object_foreach (ex.found, key, f)
		json_array_append(list, f);
	json_object_set_new(all, "findings", list);
	json_object_set_new(all, "before", older_part());
	json_object_set(all, "points", ex.history.points);
	json_object_set(all, "changes", ex.history.changes);
	p->type = "application/json";
	p->text = json_dumps(all, JSON_COMPACT);
	p->len = p->text != NULL ? strlen(p->text) : 0;
	json_decref(all);
}

static void page_html(struct page *p)
{
	p->type = "text/html; charset=utf-8";
	p->len = sizeof(page_text) - 1;
	p->text = malloc(p->len);
	if (p->text != NULL)
		memcpy(p->text, page_text, p->len);
}

static void page_health(struct page *p)
{
	p->type = "text/plain";
	p->text = strdup(ex.ring[0] != NULL ? "ok\n" : "no router\n");
	p->len = p->text != NULL ? strlen(p->text) : 0;
	p->status = ex.ring[0] != NULL ? MHD_HTTP_OK : MHD_HTTP_SERVICE_UNAVAILABLE;
}

static const struct {
	const char *path;
	void (*put)(struct page *p);
} pages[] = {
	{"/", page_html},
	{"/metrics", page_metrics},
	{"/data", page_data},
	{"/health", page_health},
};

static enum MHD_Result send_page(struct MHD_Connection *con, const struct page *p)
{
	struct MHD_Response *r;
	enum MHD_Result rc;

	if (p->text == NULL)
		return MHD_NO;
	r = MHD_create_response_from_buffer(p->len, p->text, MHD_RESPMEM_MUST_FREE);
	if (r == NULL) {
		free(p->text);
		return MHD_NO;
	}
	MHD_add_response_header(r, "Content-Type", p->type);
	MHD_add_response_header(r, "Cache-Control", "no-store");
	MHD_add_response_header(r, "X-Content-Type-Options", "nosniff");
	MHD_add_response_header(
		r, "Content-Security-Policy",
		"default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'; connect-src 'self'; img-src data:");
	rc = MHD_queue_response(con, p->status, r);
	MHD_destroy_response(r);
	return rc;
}

static enum MHD_Result on_request(void *arg, struct MHD_Connection *con, const char *path,
				  const char *method, const char *version, const char *body,
				  size_t *body_len, void **state)
{
	struct page p = {.status = MHD_HTTP_OK};

	(void)arg;
	(void)version;
	(void)body;
	if (*state == NULL) { /* headers; a body is ignored */
		*state = con;
		return MHD_YES;
	}
	if (*body_len != 0) {
		*body_len = 0;
		return MHD_YES;
	}
	if (strcmp(method, "GET") != 0 && strcmp(method, "HEAD") != 0) {
		p.status = MHD_HTTP_METHOD_NOT_ALLOWED;
		p.type = "text/plain";
		p.text = strdup("method not allowed: use GET\n");
	}
	for (size_t i = 0; i < sizeof(pages) / sizeof(pages[0]) && p.text == NULL; i++) {
		if (strcmp(path, pages[i].path) != 0)
			continue;
		pthread_mutex_lock(&ex.lock);
		pages[i].put(&p);
		pthread_mutex_unlock(&ex.lock);
	}
	if (p.type == NULL) {
		p.status = MHD_HTTP_NOT_FOUND;
		p.type = "text/plain";
		p.text = strdup("not found: use /, /metrics, /data or /health\n");
	}
	if (p.len == 0 && p.text != NULL)
		p.len = strlen(p.text);
	return send_page(con, &p);
}

/* ---- the server ---- */

/* getaddrinfo() truncates larger numbers. */
static bool is_port(const char *text)
{
	char *end;
	const unsigned long n = strtoul(text, &end, 10);

	return *text >= '0' && *text <= '9' && *end == '\0' && n <= UINT16_MAX;
}

/* @return 0 or an error of getaddrinfo(). */
static int resolve_listen(const char *text, struct addrinfo **found)
{
	const struct addrinfo hints = {.ai_socktype = SOCK_STREAM, .ai_flags = AI_PASSIVE};
	const char *colon = strrchr(text, ':'), *from = text;
	size_t n = colon != NULL ? (size_t)(colon - text) : 0;
	char host[128];

	if (colon == NULL || !is_port(colon + 1))
		return EAI_NONAME;
	if (n >= 2 && text[0] == '[' && text[n - 1] == ']') {
		from++;
		n -= 2;
	}
	snprintf(host, sizeof(host), "%.*s", (int)n, from);
	return getaddrinfo(n != 0 ? host : NULL, colon + 1, &hints, found);
}

static struct MHD_Daemon *start_server(const char *listen)
{
	struct MHD_Daemon *d;
	struct addrinfo *at;

	if (resolve_listen(listen, &at) != 0) {
		ctl_report(CTL_USAGE, "--listen: got \"%s\", allowed: address:port or [v6]:port",
			   listen);
		return NULL;
	}
	d = MHD_start_daemon(MHD_USE_INTERNAL_POLLING_THREAD |
				     (at->ai_family == AF_INET6 ? MHD_USE_IPv6 : 0),
			     0, NULL, NULL, on_request, NULL, MHD_OPTION_SOCK_ADDR, at->ai_addr,
			     MHD_OPTION_CONNECTION_LIMIT, CONNECTIONS,
			     MHD_OPTION_CONNECTION_TIMEOUT, PATIENCE_S, MHD_OPTION_END);
	if (d == NULL)
		ctl_report(CTL_USAGE, "--listen %s: %s", listen, strerror(errno));
	freeaddrinfo(at);
	return d;
}

enum ctl_status ctl_exporter(struct ctl *c, int argc, char **argv)
{
	const double seconds = c->opt.seconds > 0 ? c->opt.seconds : 2;
	const union MHD_DaemonInfo *info;
	struct MHD_Daemon *d;

	(void)argc;
	(void)argv;
	ex.c = c;
	ex.found = json_object();
	take_sample();
	d = start_server(c->opt.listen);
	if (d == NULL)
		return CTL_USAGE;
	info = MHD_get_daemon_info(d, MHD_DAEMON_INFO_BIND_PORT);
	fprintf(stderr, "kvroute-ctl: exporter ready, port %u of %s%s%s\n",
		info != NULL ? info->port : 0, c->opt.listen, ex.err[0] != '\0' ? "; " : "",
		ex.err);
	while (ctl_wait(seconds))
		take_sample();
	MHD_stop_daemon(d);
	clear_samples();
	history_clear(&ex.history);
	json_decref(ex.found);
	return CTL_OK;
}
