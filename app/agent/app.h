/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef AGENT_APP_H
#define AGENT_APP_H

/**
 * @file
 * kvroute-agent: one thread around an epoll set. On one side lib/agent (UDP to the router), on the
 * other the engine: requests by HTTP (jobs.c: one job for each; engine.c: their connections),
 * /health and /metrics through libcurl's multi interface (probe.c), and KV events through ZMQ
 * (stream.c: one for each rank).
 *
 * Large bodies come over connections of their own (bodies.c).
 *
 *	waiting: until /health is fine and /metrics read; then
 *	serving: registered; until /health fails three times (leave, wait again) or SIGTERM;
 *	draining: asks the router for no new requests; what comes until it has heard that is run.
 *	Until the router says that none is left, or time is up; then GOODBYE.
 *
 * SIGUSR2 asks for the same without an end, and the next one for requests again.
 *
 * All fields belong to the one thread.
 */

#include <curl/curl.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/queue.h>

#include "facts.h"
#include "kvr_agent.h"
#include "kvr_log.h"
#include "kvr_outage.h"
#include "kvr_stats.h"
#include "options.h"
#include "quiet.h"

#define APP_COUNTER_LIST(X)                                                                        \
	X(APP_REQUESTS, requests, COUNT, "requests", "dispatched to the engine")                   \
	X(APP_ANSWERED, answered, COUNT, "requests", "ended with the engine's answer")             \
	X(APP_FAILED, failed, COUNT, "requests", "the engine broke off, or could not be reached")  \
	X(APP_ABORTED, aborted, COUNT, "requests", "stopped by client or router")                  \
	X(APP_RUNNING, running, GAUGE, "requests", "at the engine now")                            \
	X(APP_REFUSED, refused, COUNT, "requests", "not taken: no HTTP message, or leaving")       \
	X(APP_PATHS_REFUSED, paths_refused, COUNT, "requests", "that named no path of --paths")    \
	X(APP_STATUS_4XX, status_4xx, COUNT, "answers", "with a status of 400 to 499")             \
	X(APP_STATUS_5XX, status_5xx, COUNT, "answers", "with a status of 500 and more")           \
	X(APP_HIDDEN_ERRORS, hidden_errors, COUNT, "answers",                                      \
	  "with a status below 400 that are an error, or an empty stream")                         \
	X(APP_OVERLOADED, overloaded, COUNT, "answers",                                            \
	  "by which the engine refuses for want of room")                                          \
	X(APP_PAUSED, paused, COUNT, "times", "an engine waited for the router")                   \
	X(APP_BAD_EVENTS, bad_events, COUNT, "events", "of answers that were no JSON")             \
	X(APP_RESULTS_LARGE, results_large, COUNT, "results", "of prefill too large for a frame")  \
	X(APP_BATCHES, batches, COUNT, "batches", "of KV events taken")                            \
	X(APP_BATCHES_BAD, batches_bad, COUNT, "batches", "that cannot be read")                   \
	X(APP_GAPS, gaps, COUNT, "gaps", "numbers of batches that were missed")                    \
	X(APP_REGRESSIONS, regressions, COUNT, "times", "numbers of batches went back")            \
	X(APP_REPLAYS, replays, COUNT, "replays", "asked for")                                     \
	X(APP_REPLAYED, replayed, COUNT, "batches", "that a replay brought")                       \
	X(APP_EVENTS_HELD, events_held, COUNT, "times", "a rank's events waited for the router")   \
	X(APP_EVENTS_WAIT, events_wait, GAUGE, "ranks", "whose events wait for the router now")    \
	X(APP_CLEAN_STARTS, clean_starts, COUNT, "times", "a rank started clean")                  \
	X(APP_HEALTH_FAILED, health_failed, COUNT, "looks", "at /health that failed")              \
	X(APP_METRICS_FAILED, metrics_failed, COUNT, "looks", "at /metrics that told nothing")     \
	X(APP_PAGES_FAILED, pages_failed, COUNT, "pages",                                          \
	  "of the engine's description that could not be read")                                    \
	X(APP_FACTS_BAD, facts_bad, COUNT, "values",                                               \
	  "of the engine's description that are out of range, or no endpoint")                     \
	X(APP_BODIES, bodies, COUNT, "bodies", "that clients have brought here themselves")        \
	X(APP_BODIES_AWAITED, bodies_awaited, COUNT, "bodies", "announced by a request")           \
	X(APP_BODIES_MISSED, bodies_missed, COUNT, "bodies", "that have not come in time")         \
	X(APP_BODIES_REFUSED, bodies_refused, COUNT, "bodies",                                     \
	  "unknown token, brought twice, or no room")                                              \
	X(APP_CANARIES, canaries, COUNT, "prompts", "whose blocks came back in events")            \
	X(APP_CANARIES_BAD, canaries_bad, COUNT, "prompts",                                        \
	  "whose blocks have other names in events than /tokenize gives them")                     \
	X(APP_CANARIES_FAILED, canaries_failed, COUNT, "prompts", "that could not be tried")       \
	X(APP_UNWATCHED, unwatched, COUNT, "times", "the kernel would not watch a connection")     \
	X(APP_LIVES, lives, COUNT, "lives", "of the engine that were registered")

enum app_counter { APP_COUNTER_LIST(KVR_COUNTER_ENUM) APP_N };
struct app_stats {
	APP_COUNTER_LIST(KVR_COUNTER_FIELD)
};
extern const struct kvr_stats_def app_stats_def;

#define APP_LOOK_MS   5000L	 /* for a look at /health or /metrics */
#define APP_PAGE_MOST (4u << 20) /* bytes of an answer */

enum app_state { APP_WAITING, APP_SERVING, APP_LEAVING, APP_DRAINING, APP_GOING };
enum app_fd { APP_FD_ROUTER = 1, APP_FD_CURL, APP_FD_ZMQ, APP_FD_BODY, APP_FD_ENGINE };

/** What curl's private pointer points to begins with this. */
enum app_transfer { APP_PROBE, APP_PAGE, APP_CANARY };

/** What the log was told last of something that goes on. */
struct app_news {
	char what[96]; /* "": nothing, all is well */
	uint64_t again_us;
};

/** What curl has brought of an answer. */
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

/** The pages of an engine that describe it, one after the other, before it is registered. */
struct app_describe {
	enum app_transfer kind;
	enum agent_page page; /**< asked for now */
	CURL *easy;
	struct app_page body;
	bool busy;
	uint32_t attempts; /**< rounds that ended without an answer, since the last that did not */
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
	struct agent_options o;	    /* in force: what `facts` knows fills its gaps */
	struct agent_facts facts;   /* of this life of the engine */
	struct app_describe describe;
	enum app_state state;
	struct kvr_agent *agent; /* NULL: waiting */
	int epoll;
	uint64_t now_us, until_us; /* until: of draining or leaving */
	CURLM *multi;
	uint64_t curl_due_us; /* UINT64_MAX: none */
	struct app_engine *eng;
	struct app_bucket *buckets;
	struct app_jobs dirty, blocked; /* with data to hand on; waiting for the router */
	struct app_jobs heads;		/* with a head, for what follows; the oldest first */
	struct app_jobs trials;
	uint32_t trials_failed; /* in succession */
	struct app_probe health, metrics;
	unsigned int health_failures;
	struct agent_quiet quiet; /* of the engine */
	struct app_news start;	  /* why the worker cannot begin though the engine is fine */
	struct agent_prom prom;	  /* of this life of the engine */
	uint32_t block_size;	  /* the same: --block-size, or as the engine reports */
	struct agent_prom
		described;	 /* the same: the first metrics, whose constants show a restart */
	uint64_t blocks;	 /* the same: KV blocks of a rank; 0: unknown */
	struct app_news missing; /* values that are not known */
	uint32_t live[AGENT_PROM_RANKS]; /* requests of each rank here */
	struct app_bodies *bodies;
	struct app_canary *canary; /* NULL: none */
	char facing[64];	   /* our address towards the router, in numbers; "" unknown */
	char body_addr[101];	   /* where clients bring them; "" nowhere */
	char engine_addr[101];	   /* the engine's HTTP, as others are told */
	void *zmq;
	struct app_stream **streams;
	struct app_stats st;
	bool resting;  /* SIGUSR2: the router is to drain us */
	uint32_t told; /* 1 + the state that the log was told last; 0 = none, or a refusal */
	bool drained;  /* the router says that nothing is booked here, or does not know us */
	bool more;     /* events wait: no sleep */
	struct kvr_outage silence;		  /* of the router */
	uint64_t frames;			  /* of the router at the last turn */
	uint64_t routers_returned, router_epochs; /* of lib/agent at the last turn */
	bool refused; /* by the router: it is asked again after 10 s only */
};

/* log.c */
/** A line of the log, with our worker and pool beside what it is @p about; of one text eight at
 * once and one a second, and how many were left out. */
void app_log(struct app *a, const struct kvr_log_about *about, const char *fmt, ...)
	__attribute__((format(printf, 3, 4)));
/** Whether the log is to be told @p what: it was told something else last, or this a minute ago.
 * "": all is well, which is no news. */
bool app_is_news(const struct app *a, struct app_news *n, const char *what);
/** All counters, one line each. */
void app_print_stats(struct app *a);
/** The last line of the log: what is not 0 of the agent's own. */
void app_log_end(struct app *a);

/* watch.c */
/** epoll_ctl() of our set; @p name comes back with what happens to @p fd. A refusal to watch is
 * counted and logged here: who does not end what waits for @p fd lets it wait for ever.
 * @return 0 or -errno. */
int app_watch(struct app *a, int op, int fd, enum app_fd kind, uint32_t name, uint32_t events);

/* describe.c */
/** Ask the engine to describe itself. */
void app_describe_begin(struct app *a);
/** A page has come, or has not. @return true: it was the last but the metrics. */
bool app_describe_ended(struct app *a, CURLcode result);
/** A description that is under way is given up. */
void app_describe_forget(struct app *a);
void app_describe_fini(struct app *a);
/** After the metrics: options in force. @return false with a line in the log: the engine cannot be
 * registered. */
bool app_describe_apply(struct app *a);

/* page.c */
/** Prepare @p easy to get @p path of the engine within @p most_ms, and keep in @p page what comes;
 * @p whose is its private pointer. */
void app_page_get(const struct app *a, CURL *easy, const char *path, struct app_page *page,
		  enum app_transfer *whose, long most_ms);

/* why.c */
/** Why a transfer has failed, in words. @p result is not CURLE_OK. */
void app_http_why(const struct app *a, CURL *easy, CURLcode result, char *why, size_t len);
/** Why an answer cannot be read, from -errno of its reader. */
const char *app_answer_why(int rc);
/** Whether nobody listens at the engine's address. */
bool app_http_refused(CURL *easy, CURLcode result);

/* http.c */
int app_http_init(struct app *a);
void app_http_fini(struct app *a);
void app_http_ready(struct app *a, int fd, uint32_t events);
/** Timeouts, and what has ended. */
void app_http_turn(struct app *a);

/* request.c */
int app_job_dispatch(struct app *a, const struct kvr_agent_request *r);

/* jobs.c */
void app_job_abort(struct app *a, uint64_t handle);
/** Hand on what has come, as far as the router takes it. */
void app_jobs_flush(struct app *a);
/** When heads that nothing has followed are handed on; UINT64_MAX: there are none. */
uint64_t app_heads_due_us(const struct app *a);
/** Give up trials of which nothing has come in time. */
void app_trials_turn(struct app *a);
/** When the first of them is given up; UINT64_MAX: there are none. */
uint64_t app_trials_due_us(const struct app *a);
uint32_t app_jobs_running(const struct app *a);

/* probe.c */
/** Begin a look that is due. */
void app_probe_turn(struct app *a);
/** Look at /metrics now, unless it is being looked at. */
void app_probe_metrics(struct app *a);
void app_probe_ended(struct app *a, struct app_probe *p, CURLcode result);
uint64_t app_probe_due_us(const struct app *a);
/** Looks that are under way are not waited for: what they tell is of an engine that was given up.
 */
void app_probe_forget(struct app *a);
void app_probe_fini(struct app_probe *p);

/* serve.c: what the above lead to */
void app_engine_fine(struct app *a);
void app_engine_lost(struct app *a, const char *why);
void app_load_known(struct app *a);
void app_leave(struct app *a, bool for_good);
/** The worker of an engine that stands still leaves. */
void app_quiet_turn(struct app *a);
/** Say when the router does not answer, and when it does again. */
void app_router_turn(struct app *a);

/* stream.c */
/** Begin with the events of all ranks. @return 0 or -errno. */
int app_streams_start(struct app *a);
void app_streams_stop(struct app *a);
void app_streams_turn(struct app *a);
/** After the router's turn: those that waited for it go on with the next turn of the loop. */
void app_streams_resume(struct app *a);
/** Of a dump. @return as on_dump of kvr_agent.h. */
int app_stream_dump(struct app *a, uint32_t dp_rank, uint64_t pos, struct kvr_agent_kv *kv);

#endif
