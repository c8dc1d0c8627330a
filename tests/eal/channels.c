/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * To be preloaded: an interface has the KVR_CHANNELS queues that it is said to have. net_af_xdp
 * asks the kernel (ETHTOOL_GCHANNELS) and takes one queue where the driver does not tell or tells
 * receive and transmit queues apart: veth, macvlan, tap before Linux 6.9. For
 * test_port_xdp_queues.py.
 */
#include <errno.h>
#include <net/if.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/ioctl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <linux/ethtool.h>
#include <linux/sockios.h>

int ioctl(int fd, unsigned long request, ...)
{
	const char *said = getenv("KVR_CHANNELS");
	struct ethtool_channels *c;
	void *arg;
	va_list ap;

	va_start(ap, request);
	arg = va_arg(ap, void *);
	va_end(ap);
	if (request != SIOCETHTOOL || said == NULL)
		return (int)syscall(SYS_ioctl, fd, request, arg);
	c = (void *)((struct ifreq *)arg)->ifr_data;
	if (c->cmd != ETHTOOL_GCHANNELS)
		return (int)syscall(SYS_ioctl, fd, request, arg);
	c->max_combined = c->combined_count = (uint32_t)atoi(said);
	errno = 0; /* the driver looks at it, whatever is returned */
	return 0;
}
