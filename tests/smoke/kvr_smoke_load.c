/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Steady load of a front end on plain sockets: a rate of requests to smoke engines, each answer
 * compared byte by byte. Requests with a retryable rejection are submitted again, as a front end
 * does. Every second one is DIRECT, and every second pair of them has a long answer. It prints a
 * line when it is connected. SIGUSR1 prints the time (CLOCK_MONOTONIC) at which the first request
 * submitted afterwards was sent to a worker. SIGTERM: no new requests; when all have ended, one
 * line of JSON: each request has one outcome.
 */
#include "kvr_client.h"
#include "kvr_rand.h"

#include <errno.h>
#include <getopt.h>
#include <poll.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define GROUPS	     8
#define SHARED	     32 /* blocks common to the requests of a group */
#define BLOCKS	     40
#define ANSWER	     16	 /* tokens, of every second request */
#define LONG	     100 /* of the others: more than an engine's -s, so slow */
#define MAX_REQUESTS 4096
#define AGAIN_US     50000

struct request {
	uint32_t number; /* 0: free */
	uint32_t tokens; /* received */
	uint32_t tries;
	bool wrong, under_way, direct;
	uint32_t answer;		       /* requested tokens */
	uint64_t submitted_us, try_us, due_us; /* first submission; this one; next one */
};

static struct request requests[MAX_REQUESTS];
static struct kvr_client *c;
static uint32_t block_size = 16, rate = 200, n_open;
static uint64_t begun, answered, wrong, refused, lost, lost_direct, silent, other, again;
static uint64_t twice, longest_us; /* twice: second ends of ended requests */
static uint64_t mark_us;
static volatile sig_atomic_t stop, mark;

static uint64_t now_us(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_MONOTONIC, &ts);
	return (uint64_t)ts.tv_sec * 1000000 + (uint64_t)ts.tv_nsec / 1000;
}

static void on_accepted(struct kvr_client *cl, uint64_t id, const struct kvr_client_choice *ch,
			void *user)
{
	const struct request *r = user;

	if (mark_us == 0 || r->try_us < mark_us)
		return;
	printf("routed at %llu us\n", (unsigned long long)now_us());
	fflush(stdout);
	mark_us = 0;
}

static void on_item(struct kvr_client *cl, uint64_t id, const struct kvr_client_item *it,
		    void *user)
{
	struct request *r = user;
	const uint32_t *t = it->data;

	for (uint32_t i = 0; i < it->len / 4; i++, r->tokens++)
		r->wrong |= t[i] != (uint32_t)kvr_mix64(((uint64_t)r->number << 32) + r->tokens);
}

static void end_request(struct request *r, uint64_t *outcome)
{
	const uint64_t took = now_us() - r->submitted_us;

	++*outcome;
	longest_us = took > longest_us ? took : longest_us;
	r->number = 0;
	n_open--;
}

static void on_end(struct kvr_client *cl, uint64_t id, const struct kvr_client_end *e, void *user)
{
	struct request *r = user;

	if (!r->under_way) {
		twice++;
		return;
	}
	r->under_way = false;
	lost_direct += e->reason == KVR_CLIENT_LOST && r->direct && e->items > 0;
	if (e->reason == KVR_CLIENT_FINISHED)
		end_request(r, r->wrong || r->tokens != r->answer ? &wrong : &answered);
	else if (e->retryable && r->tokens == 0 && ++r->tries < 200)
		r->due_us = now_us() + AGAIN_US;
	else
		end_request(r, e->reason == KVR_CLIENT_REJECTED ? &refused
			       : e->reason == KVR_CLIENT_LOST	? &lost
			       : e->reason == KVR_CLIENT_SILENT ? &silent
								: &other);
}

static const struct kvr_client_ops ops = {
	.on_accepted = on_accepted, .on_item = on_item, .on_end = on_end};

/* Prompt of a group: a common prefix and a tail of its own. */
static void submit_request(struct request *r)
{
	uint64_t sh[BLOCKS], id;
	const struct kvr_client_request q = {.pool_name = "default",
					     .hashes = sh,
					     .n_hashes = BLOCKS,
					     .isl = BLOCKS * block_size,
					     .max_tokens = r->answer,
					     .flags = r->direct ? KVR_CLIENT_DIRECT : 0,
					     .body = &r->number,
					     .body_len = sizeof(r->number),
					     .ops = &ops,
					     .user = r};

	for (uint32_t i = 0; i < BLOCKS; i++)
		sh[i] = i < SHARED ? kvr_mix64(r->number % GROUPS << 8 | i)
				   : kvr_mix64((uint64_t)r->number << 32 | i);
	r->try_us = now_us();
	r->due_us = 0;
	again += r->tries != 0;
	if (kvr_client_submit(c, &q, &id) == 0)
		r->under_way = true;
	else
		end_request(r, &other);
}

/* Due requests: new ones at their time, rejected ones again. */
static void submit_due(uint64_t began_us)
{
	const uint64_t now = now_us(), due = (now - began_us) * rate / 1000000;

	for (uint32_t i = 0; i < MAX_REQUESTS; i++) {
		struct request *r = &requests[i];

		if (r->number == 0 && stop == 0 && begun < due) {
			*r = (struct request){.number = (uint32_t)++begun, .submitted_us = now};
			r->direct = r->number % 2 == 0;
			r->answer = r->number % 4 < 2 ? ANSWER : LONG;
			n_open++;
			submit_request(r);
		} else if (r->number != 0 && !r->under_way && r->due_us <= now) {
			submit_request(r);
		}
	}
}

static void on_signal(int sig)
{
	if (sig == SIGUSR1)
		mark = 1;
	else
		stop = 1;
}

static void print_report(void)
{
	struct kvr_client_stats st;

	kvr_client_stats_get(c, &st);
	const struct {
		const char *name;
		uint64_t n;
	} all[] = {{"requests", begun},
		   {"answered", answered},
		   {"wrong", wrong},
		   {"refused", refused},
		   {"lost", lost},
		   {"lost_direct", lost_direct},
		   {"silent", silent},
		   {"other", other},
		   {"twice", twice},
		   {"submitted_again", again},
		   {"by_library", st.restarted},
		   {"longest_ms", longest_us / 1000}};

	for (size_t i = 0; i < sizeof(all) / sizeof(all[0]); i++)
		printf("%s\"%s\": %llu", i == 0 ? "{" : ", ", all[i].name,
		       (unsigned long long)all[i].n);
	puts("}");
}

int main(int argc, char **argv)
{
	/* A busy machine may keep a router silent for long. */
	struct kvr_client_conf conf = {.silence_ms = 60000};
	uint64_t began_us;
	int opt;

	while ((opt = getopt(argc, argv, "r:n:")) != -1) {
		if (opt == 'r')
			conf.router = optarg;
		else if (opt == 'n')
			rate = (uint32_t)strtoul(optarg, NULL, 0);
		else
			return 2;
	}
	signal(SIGTERM, on_signal);
	signal(SIGUSR1, on_signal);
	c = conf.router != NULL ? kvr_client_create(&conf) : NULL;
	if (c == NULL || kvr_client_connect_wait(c) != 0) {
		perror("kvr-smoke-load");
		return 1;
	}
	puts("connected");
	fflush(stdout);
	began_us = now_us();
	while (stop == 0 || n_open > 0) {
		struct pollfd p = {kvr_client_fd(c), POLLIN, 0};
		const int ms = kvr_client_timeout_ms(c);

		if (mark != 0) {
			mark = 0;
			mark_us = now_us();
		}
		submit_due(began_us);
		poll(&p, 1, ms < 0 || ms > 2 ? 2 : ms);
		kvr_client_process(c);
	}
	print_report();
	kvr_client_destroy(c);
	return 0;
}
