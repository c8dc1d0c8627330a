/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * A preloaded library: every interface reports KVR_CHANNELS queues. net_af_xdp asks the kernel
 * (ETHTOOL_GCHANNELS) and uses one queue if the driver reports no number or counts receive and
 * transmit queues separately (veth, macvlan, tap before Linux 6.9). Used by
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
	const char *channels = getenv("KVR_CHANNELS");
	struct ethtool_channels *c;
	void *arg;
	va_list ap;

	va_start(ap, request);
	arg = va_arg(ap, void *);
	va_end(ap);
	if (request != SIOCETHTOOL || channels == NULL)
		return (int)syscall(SYS_ioctl, fd, request, arg);
	c = (void *)((struct ifreq *)arg)->ifr_data;
	if (c->cmd != ETHTOOL_GCHANNELS)
		return (int)syscall(SYS_ioctl, fd, request, arg);
	c->max_combined = c->combined_count = (uint32_t)atoi(channels);
	errno = 0; /* net_af_xdp reads errno even after success */
	return 0;
}
