/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef AGENT_APP_H
#define AGENT_APP_H

/**
 * @file
 * kvroute-agent: one thread around an epoll set. On one side lib/agent (UDP to the router), on the
 * other the engine: requests by HTTP (jobs.c: one job per request; engine.c: connections), /health
 * and /metrics through libcurl's multi interface (probe.c), and KV events through ZMQ (stream.c:
 * one stream per rank). Large bodies arrive over separate connections (bodies.c).
 *
 *	WAITING:  until /health succeeds and /metrics was read; then
 *	SERVING:  registered; until /health fails three times (LEAVING, then WAITING) or SIGTERM;
 *	DRAINING: asks the router for no new requests, and runs those in flight until
 *	          none is left or the time limit passes; then
 *	GOING:    sends GOODBYE, and ends.
 *
 * SIGUSR2 drains without an end; the next SIGUSR2 resumes.
 *
 * All fields belong to the one thread.
 */

#include <curl/curl.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/queue.h>

#include "facts.h"
#include "hang_detector.h"
#include "kvr_agent.h"
#include "kvr_log.h"
#include "kvr_outage.h"
#include "kvr_stats.h"
#include "options.h"

#define APP_COUNTER_LIST(X)                                                                        \
	X(APP_REQUESTS, requests, COUNT, "requests", "dispatched to the engine")                   \
	X(APP_ANSWERED, answered, COUNT, "requests", "ended with the engine's answer")             \
	X(APP_FAILED, failed, COUNT, "requests", "that failed at the engine, or did not reach it") \
	X(APP_ABORTED, aborted, COUNT, "requests", "stopped by client or router")                  \
	X(APP_RUNNING, running, GAUGE, "requests", "at the engine now")                            \
	X(APP_REFUSED, refused, COUNT, "requests", "rejected: invalid message, or leaving")        \
	X(APP_PATHS_REFUSED, paths_refused, COUNT, "requests", "that named no path of --paths")    \
	X(APP_STATUS_4XX, status_4xx, COUNT, "answers", "with a status of 400 to 499")             \
	X(APP_STATUS_5XX, status_5xx, COUNT, "answers", "with a status of 500 and more")           \
	X(APP_HIDDEN_ERRORS, hidden_errors, COUNT, "answers",                                      \
	  "with a status below 400 that are an error, or an empty stream")                         \
	X(APP_OVERLOADED, overloaded, COUNT, "answers", "that reject for lack of capacity")        \
	X(APP_PAUSED, paused, COUNT, "times", "the engine waited for the router")                  \
	X(APP_BAD_EVENTS, bad_events, COUNT, "events", "of answers that are not JSON")             \
	X(APP_RESULTS_LARGE, results_large, COUNT, "results",                                      \
	  "of prefill too large for a message")                                                    \
	X(APP_BATCHES, batches, COUNT, "batches", "of KV events received")                         \
	X(APP_BATCHES_BAD, batches_bad, COUNT, "batches", "that cannot be read")                   \
	X(APP_GAPS, gaps, COUNT, "gaps", "in the numbers of batches")                              \
	X(APP_REGRESSIONS, regressions, COUNT, "times", "the numbers of batches decreased")        \
	X(APP_REPLAYS, replays, COUNT, "replays", "requested")                                     \
	X(APP_REPLAYED, replayed, COUNT, "batches", "received by replays")                         \
	X(APP_EVENTS_HELD, events_held, COUNT, "times", "a rank's events waited for the router")   \
	X(APP_EVENTS_WAIT, events_wait, GAUGE, "ranks", "whose events wait for the router now")    \
	X(APP_CLEAN_STARTS, clean_starts, COUNT, "times", "the cache of a rank was reset")         \
	X(APP_HEALTH_FAILED, health_failed, COUNT, "checks", "of /health that failed")             \
	X(APP_METRICS_FAILED, metrics_failed, COUNT, "checks", "of /metrics without load")         \
	X(APP_PAGES_FAILED, pages_failed, COUNT, "pages",                                          \
	  "of the engine's description that could not be read")                                    \
	X(APP_FACTS_BAD, facts_bad, COUNT, "values",                                               \
	  "of the engine's description that are out of range or invalid")                          \
	X(APP_BODIES, bodies, COUNT, "bodies", "received from clients directly")                   \
	X(APP_BODIES_AWAITED, bodies_awaited, COUNT, "bodies", "announced by a request")           \
	X(APP_BODIES_MISSED, bodies_missed, COUNT, "bodies", "not received in time")               \
	X(APP_BODIES_REFUSED, bodies_refused, COUNT, "bodies",                                     \
	  "rejected: unknown token, sent twice, or no capacity")                                   \
	X(APP_CANARIES, canaries, COUNT, "prompts", "whose blocks appeared in events")             \
	X(APP_CANARIES_BAD, canaries_bad, COUNT, "prompts",                                        \
	  "whose blocks did not appear in events under the hashes of their tokens")                \
	X(APP_CANARIES_FAILED, canaries_failed, COUNT, "prompts", "that could not be sent")        \
	X(APP_UNWATCHED, unwatched, COUNT, "times", "the kernel rejected a connection for epoll")  \
	X(APP_LIVES, lives, COUNT, "incarnations", "of the engine that were registered")

enum app_counter { APP_COUNTER_LIST(KVR_COUNTER_ENUM) APP_N };
struct app_stats {
	APP_COUNTER_LIST(KVR_COUNTER_FIELD)
};
extern const struct kvr_stats_def app_stats_def;

#define APP_PROBE_MS  5000L	 /* time limit of /health, /metrics and other pages */
#define APP_PAGE_MOST (4u << 20) /* maximum bytes of a page */

enum app_state { APP_WAITING, APP_SERVING, APP_LEAVING, APP_DRAINING, APP_GOING };
enum app_fd { APP_FD_ROUTER = 1, APP_FD_CURL, APP_FD_ZMQ, APP_FD_BODY, APP_FD_ENGINE };

/** First member of each object that curl's private pointer refers to. */
enum app_transfer { APP_PROBE, APP_PAGE, APP_CANARY };

/** Last log message about a lasting condition. */
struct app_news {
	char what[96]; /* "": no problem */
	uint64_t again_us;
};

/** A page being received. */
struct app_page {
	char *p;
	size_t len;
};

struct app_probe {
	enum app_transfer kind;
	const char *path;
	CURL *easy;
	struct app_page page;
	uint64_t due_us;
	bool busy;
	struct app_news news;
};

/** Pages that describe the engine, read one after the other before registration. */
struct app_describe {
	enum app_transfer kind;
	enum agent_page page; /**< page being requested */
	CURL *easy;
	struct app_page body;
	bool busy;
	uint32_t attempts; /**< consecutive rounds without an answer */
	struct app_news news[AGENT_PAGES];
};

struct app_bodies;
struct app_canary;
struct app_engine;
struct app_job;
struct app_stream;
LIST_HEAD(app_bucket, app_job);
TAILQ_HEAD(app_jobs, app_job);

struct app {
	struct agent_options given; /* the command line */
	struct agent_options o;	    /* in effect: values of `facts` fill the gaps */
	struct agent_facts facts;   /* of this incarnation of the engine */
	struct app_describe describe;
	enum app_state state;
	struct kvr_agent *agent; /* NULL: WAITING */
	int epoll;
	uint64_t now_us, until_us; /* until: of DRAINING, LEAVING or GOING */
	CURLM *multi;
	uint64_t curl_due_us; /* UINT64_MAX: none */
	struct app_engine *eng;
	struct app_bucket *buckets;
	struct app_jobs dirty, blocked; /* with data to forward; waiting for the router */
	struct app_jobs heads;		/* with a head that waits for content; oldest first */
	struct app_jobs trials;
	uint32_t trials_failed; /* consecutive */
	struct app_probe health, metrics;
	unsigned int health_failures;
	struct agent_hang hang;	     /* of the engine */
	struct app_news start;	     /* reason that a healthy engine is not registered */
	struct agent_prom prom;	     /* of this incarnation of the engine */
	uint32_t block_size;	     /* likewise: --block-size, or as reported by the engine */
	struct agent_prom described; /* likewise: first metrics, whose constants detect a restart */
	uint64_t blocks;	     /* likewise: KV blocks of a rank; 0: unknown */
	struct app_news missing;     /* unknown values */
	bool running_costs;	     /* running usage is expensive (kvr_engine_usage.h) */
	uint32_t live[AGENT_PROM_RANKS]; /* requests running per rank */
	struct app_bodies *bodies;
	struct app_canary *canary; /* NULL: none */
	char facing[64];	   /* local address facing the router, numeric; "": unknown */
	char body_addr[101];	   /* address for bodies; "": none */
	char engine_addr[101];	   /* published HTTP address of the engine */
	void *zmq;
	struct app_stream **streams;
	struct app_stats st;
	bool resting;	       /* SIGUSR2: the router is to drain the worker */
	uint32_t logged_state; /* 1 + last state logged; 0: none, or a rejection */
	bool drained; /* no request is booked here, or the worker is unknown to the router */
	bool more;    /* events wait: do not sleep */
	struct kvr_outage silence;		  /* of the router */
	uint64_t frames;			  /* frames of the router at the last turn */
	uint64_t routers_returned, router_epochs; /* of lib/agent at the last turn */
	bool refused; /* the router rejected the worker: next attempt after 10 s */
};

/* log.c */
/** Write a log line with worker and pool in addition to @p about. Lines with equal text are limited
 * to eight at once, then one per second, and suppressed ones are counted. */
void app_log(struct app *app, const struct kvr_log_about *about, const char *fmt, ...)
	__attribute__((format(printf, 3, 4)));
/** Return true if @p what should be logged: it changed, or was logged a minute ago. "": no problem,
 * never logged. */
bool app_is_news(const struct app *app, struct app_news *n, const char *what);
/** Print all counters on standard error, one per line. */
void app_print_stats(struct app *app);
/** Write the last log line: the agent's counters above 0. */
void app_log_end(struct app *app);

/* epoll_watch.c */
/** epoll_ctl() on the agent's set; events of @p fd report @p name. An error is counted and logged
 * here. The caller must end an operation that depends on @p fd, because it would never be woken.
 * @return 0 or -errno. */
int app_watch(struct app *app, int op, int fd, enum app_fd kind, uint32_t name, uint32_t events);

/* describe.c */
/** Start reading the pages that describe the engine. */
void app_describe_begin(struct app *app);
/** A page was received, or failed. @return true: it was the last page but /metrics. */
bool app_describe_ended(struct app *app, CURLcode result);
/** Abandon the description in progress. */
void app_describe_forget(struct app *app);
void app_describe_fini(struct app *app);
/** After /metrics: set the options in effect. @return false, after logging: the engine cannot be
 * registered. */
bool app_describe_apply(struct app *app);

/* http_get.c */
/** Prepare @p easy to read @p path of the engine into @p page within @p most_ms; @p whose is its
 * private pointer. */
void app_http_get(const struct app *app, CURL *easy, const char *path, struct app_page *page,
		  enum app_transfer *whose, long most_ms);

/* curl_error.c */
/** Describe a failed transfer; @p result is not CURLE_OK. */
void app_curl_error(const struct app *app, CURL *easy, CURLcode result, char *why, size_t len);
/** Describe an answer that cannot be read, from -errno of its reader. */
const char *app_answer_error(int rc);
/** Return true if the engine's host refused the connection. */
bool app_http_refused(CURL *easy, CURLcode result);

/* http.c */
int app_http_init(struct app *app);
void app_http_fini(struct app *app);
void app_http_ready(struct app *app, int fd, uint32_t events);
/** Handle timeouts and finished transfers. */
void app_http_turn(struct app *app);

/* request.c */
int app_job_dispatch(struct app *app, const struct kvr_agent_request *r);

/* jobs.c */
void app_job_abort(struct app *app, uint64_t handle);
/** Forward received data as far as the router accepts them. */
void app_jobs_flush(struct app *app);
/** Time at which heads without content are forwarded; UINT64_MAX: none. */
uint64_t app_heads_due_us(const struct app *app);
/** End trials without data in time. */
void app_trials_turn(struct app *app);
/** Time at which the first trial ends; UINT64_MAX: none. */
uint64_t app_trials_due_us(const struct app *app);
uint32_t app_jobs_running(const struct app *app);

/* probe.c */
/** Start probes that are due. */
void app_probe_turn(struct app *app);
/** Read /metrics now, unless in progress. */
void app_probe_metrics(struct app *app);
void app_probe_ended(struct app *app, struct app_probe *probe, CURLcode result);
uint64_t app_probe_due_us(const struct app *app);
/** Abandon probes in progress: the worker has left. */
void app_probe_forget(struct app *app);
void app_probe_fini(struct app_probe *probe);

/* serve.c: registration of the worker */
void app_worker_register(struct app *app);
void app_worker_withdraw(struct app *app, const char *why);
void app_load_report(struct app *app);
void app_leave(struct app *app, bool final);
/** The worker of an engine that hangs leaves. */
void app_hang_turn(struct app *app);
/** Log when the router stops answering, and when it answers again. */
void app_router_turn(struct app *app);

/* stream.c */
/** Start the event streams of all ranks. @return 0 or -errno. */
int app_streams_start(struct app *app);
void app_streams_stop(struct app *app);
void app_streams_turn(struct app *app);
/** After the router's turn: streams that waited for it continue in the next turn. */
void app_streams_resume(struct app *app);
/** For on_dump. @return as on_dump of kvr_agent.h. */
int app_stream_dump(struct app *app, uint32_t dp_rank, uint64_t pos, struct kvr_agent_kv *kv);

#endif
