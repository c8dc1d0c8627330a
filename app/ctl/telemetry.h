/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef CTL_TELEMETRY_H
#define CTL_TELEMETRY_H

/**
 * @file
 * Client of DPDK's telemetry socket: finds the routers of this host, connects to one of them, sends
 * commands. One thread per object. A command blocks until the answer, at most TEL_PATIENCE_S.
 *
 * An error is one line of text and an exit status for scripts.
 */

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>

#define TEL_PATIENCE_S 5

/** What kvroute-ctl exits with. */
enum ctl_status {
	CTL_OK = 0,
	CTL_REFUSED = 1, /* rejected by the router; or doctor has findings */
	CTL_USAGE = 2,	 /* unknown command or wrong arguments */
	CTL_DOWN = 3,	 /* no router, or no answer */
	CTL_DENIED = 4,	 /* no permission for the socket */
	CTL_SEVERAL = 5, /* several routers and no --router NAME */
};

struct tel {
	int fd;		 /* -1: closed */
	long pid;	 /* of the router, from its greeting */
	size_t max;	 /* bytes of the longest answer */
	char *answer;	 /* max + 1 bytes */
	char prefix[64]; /* its file prefix */
};

/** Folders to search for sockets of routers, in this order; ends with "". */
struct tel_places {
	char at[6][256];
};

/** Fill in the folders: $RUNTIME_DIRECTORY alone if set; else those of the service, root and user.
 */
void tel_places(struct tel_places *p);

/**
 * Connect to the router with file prefix @p prefix; NULL: to the only router.
 * @return CTL_OK; or another status, with one line in @p err and the object closed.
 */
enum ctl_status tel_open(struct tel *t, const struct tel_places *places, const char *prefix,
			 char *err, size_t errlen);

/** Write the names of the routers that answer to @p text, one per line. @return their number. */
int tel_list_routers(const struct tel_places *places, char *text, size_t len);

void tel_close(struct tel *t);

/**
 * Send @p command, such as "/kvroute/pools" or "/kvroute/drain,1".
 * @return the answer, released by the caller with json_decref(): JSON null for an unknown command,
 * {"error", "message"} for an error. Numbers of 19 digits and more are texts. NULL: connection
 * lost, object closed, one line in @p err.
 */
json_t *tel_ask(struct tel *t, const char *command, char *err, size_t errlen);

/** Send @p command and join the pages of its answer: while an answer has "next", ask for the next
 * page and append its member @p pages. @p pages NULL: one answer. */
json_t *tel_ask_pages(struct tel *t, const char *command, const char *pages, char *err,
		      size_t errlen);

/** Copy the pages of /kvroute/metrics to @p out, without the end line. @return 0; -1 with one line
 * in
 * @p err: connection lost, or no metrics. */
int tel_copy_metrics(struct tel *t, FILE *out, char *err, size_t errlen);

/** @return true if @p answer is an error. */
bool tel_is_error(const json_t *answer);

#endif
