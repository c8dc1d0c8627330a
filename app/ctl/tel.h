/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef CTL_TEL_H
#define CTL_TEL_H

/**
 * @file
 * DPDK's telemetry socket, from outside: which routers run on this host, one connection to one of
 * them, questions and answers. One object, one thread; an answer takes as long as the router does,
 * at most TEL_PATIENCE_S.
 *
 * What goes wrong ends in one line and an exit status, which scripts can tell apart.
 */

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>

#define TEL_PATIENCE_S 5

/** What kvroute-ctl exits with. */
enum ctl_status {
	CTL_OK = 0,
	CTL_REFUSED = 1, /* the router says no; doctor has found something */
	CTL_USAGE = 2,	 /* no such command, wrong arguments */
	CTL_DOWN = 3,	 /* no router runs, or it does not answer */
	CTL_DENIED = 4,	 /* not this user's socket */
	CTL_SEVERAL = 5, /* several routers run: --router NAME */
};

struct tel {
	int fd;		 /* -1: closed */
	long pid;	 /* of the router, as it says */
	size_t max;	 /* bytes of its longest answer */
	char *answer;	 /* max + 1 bytes */
	char prefix[64]; /* its file prefix */
};

/** Folders that may hold the sockets of routers, the first that fits first; ends with "". */
struct tel_places {
	char at[6][256];
};

/** $RUNTIME_DIRECTORY alone when it is set; else the service's, root's, the user's. */
void tel_places(struct tel_places *p);

/**
 * Connect to the router called @p prefix, or, when it is NULL, to the only one there is.
 * @return CTL_OK; another status with one line in @p err, and the object is closed.
 */
enum ctl_status tel_open(struct tel *t, const struct tel_places *places, const char *prefix,
			 char *err, size_t errlen);

/** Names of the routers that answer, one a line in @p text. @return how many. */
int tel_list(const struct tel_places *places, char *text, size_t len);

void tel_close(struct tel *t);

/**
 * Ask @p command, "/kvroute/pools" or "/kvroute/drain,1".
 * @return the answer, to be given back by json_decref(): JSON null for a command that the router
 * does not know, {"error", "message"} for one that it refuses; numbers of 19 digits and more are
 * texts. NULL: the connection is gone, and
 * the object closed; one line in @p err.
 */
json_t *tel_ask(struct tel *t, const char *command, char *err, size_t errlen);

/** The same for a list that comes in parts: while an answer has "next" its member @p pages is
 * completed from there on. @p pages NULL: tel_ask(). */
json_t *tel_ask_all(struct tel *t, const char *command, const char *pages, char *err,
		    size_t errlen);

/** Copy all of /kvroute/metrics to @p out, but for its last line. @return 0; -1 with one line in @p
 * err: the connection is gone, or the router tells nothing. */
int tel_metrics(struct tel *t, FILE *out, char *err, size_t errlen);

/** Whether @p answer is a refusal. */
bool tel_refused(const json_t *answer);

#endif
