/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef AGENT_JOB_H
#define AGENT_JOB_H

/**
 * @file
 * One request at the engine. request.c starts it, response.c processes the answer, and jobs.c
 * forwards data to the router and ends the request.
 */

#include "bodies.h"
#include "engine.h"
#include "kvr_engine_answer.h"

struct app_job {
	LIST_ENTRY(app_job) hash;
	TAILQ_ENTRY(app_job) queue;
	struct app_jobs *in; /* its current queue, or NULL */
	TAILQ_ENTRY(app_job) trial;
	uint64_t trial_us; /* end of the trial unless data arrive; 0: not on trial */
	struct app *app;
	uint64_t handle;
	uint32_t rank;	       /* index of the rank */
	struct app_ask ask;    /* request at the engine */
	struct app_body *body; /* separate body, or NULL */
	/* the answer */
	struct kvr_engine_answer answer;
	uint64_t head_us;  /* time of its head */
	uint32_t reported; /* tokens of the last item */
	uint16_t status;
	bool prefill, bootstrap;
	bool over, failed;
	char link[40];	 /* trace link, a JSON object; "": none */
	char words[256]; /* reason of a failure; "": unknown */
};

/* jobs.c */
struct app_bucket *app_job_bucket(struct app *app, uint64_t handle);
/** Mark as failed; the first reason counts. */
void app_job_set_error(struct app_job *job, const char *format, ...)
	__attribute__((format(printf, 2, 3)));
/** Forward its data at the end of the turn. */
void app_job_mark_dirty(struct app_job *job);
/** It has a head: forward it with the next data, or after a millisecond. */
void app_job_hold_head(struct app_job *job);
/** Free it; stops the engine if it still runs. */
void app_job_release(struct app_job *job);

/* request.c: callbacks for separate bodies */
extern const struct app_bodies_ops app_job_bodies;

/** The request probes its rank and has a shorter time limit, usually. */
void app_job_start_trial(struct app_job *job);

/** The request ended at the engine. */
void app_job_ended(void *arg, enum app_end how, const char *why);

/* response.c: callbacks of struct app_ask_ops */
bool app_job_accepts(void *arg);
int app_job_on_head(void *arg, const struct kvr_http_head *h);
int app_job_on_content(void *arg, const char *data, size_t len);

#endif
