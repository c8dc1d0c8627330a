/* SPDX-License-Identifier: BSD-3-Clause */
/* Notifications to a service manager, and the watchdog. */
#include "control/service.h"

#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "state/router.h"

void service_open(struct service *s)
{
	const char *path = getenv("NOTIFY_SOCKET"), *usec = getenv("WATCHDOG_USEC");
	const char *pid = getenv("WATCHDOG_PID");
	struct sockaddr_un to = {.sun_family = AF_UNIX};
	const size_t len = path != NULL ? strlen(path) : 0;

	*s = (struct service){.fd = -1};
	if (len < 2 || len >= sizeof(to.sun_path) || (path[0] != '/' && path[0] != '@'))
		return;
	memcpy(to.sun_path, path, len);
	if (path[0] == '@') /* abstract socket */
		to.sun_path[0] = '\0';
	s->fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	if (s->fd >= 0 && connect(s->fd, (struct sockaddr *)&to,
				  (socklen_t)(offsetof(struct sockaddr_un, sun_path) + len)) < 0)
		service_close(s);
	/* Half of the period for a late round, half of the rest for checking the lcores. */
	if (s->fd >= 0 && usec != NULL && (pid == NULL || strtol(pid, NULL, 10) == getpid()))
		s->period_ns = strtoull(usec, NULL, 10) * 1000 / 4;
}

void service_notify(const struct service *s, const char *what)
{
	if (s->fd >= 0)
		(void)!send(s->fd, what, strlen(what), MSG_NOSIGNAL);
}

void service_turn(struct service *s, struct router *rt, uint64_t now_ns)
{
	if (s->period_ns == 0 || now_ns < s->next_ns)
		return;
	s->next_ns = now_ns + s->period_ns;
	if (s->asked && rte_rcu_qsbr_check(rt->qsbr, s->token, false) == 0)
		return; /* one of them has not ended a turn since */
	if (s->asked)
		service_notify(s, "WATCHDOG=1");
	s->token = rte_rcu_qsbr_start(rt->qsbr);
	s->asked = true;
}

void service_close(struct service *s)
{
	if (s->fd >= 0)
		close(s->fd);
	*s = (struct service){.fd = -1};
}
