/* SPDX-License-Identifier: BSD-3-Clause */
/* Registration with the epoll set, with one log line for each failure. */
#include "app.h"

#include <errno.h>
#include <string.h>
#include <sys/epoll.h>

int app_watch(struct app *app, int op, int fd, enum app_fd kind, uint32_t name, uint32_t events)
{
	struct epoll_event e = {.events = events, .data.u64 = (uint64_t)kind << 32 | name};
	int err;

	if (epoll_ctl(app->epoll, op, fd, &e) == 0)
		return 0;
	err = errno;
	if (op == EPOLL_CTL_DEL || (op == EPOLL_CTL_MOD && err == ENOENT))
		return -err; /* the caller handles these */
	kvr_cell_add(&app->st.unwatched, 1);
	app_log(app, KVR_LOG_ABOUT(.level = KVR_LOG_ERROR, .reason = strerror(err)),
		"the kernel rejects a connection for epoll (ENOSPC: raise fs.epoll.max_user_watches)");
	return -err;
}
