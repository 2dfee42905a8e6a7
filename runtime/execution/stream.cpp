#include "runtime/execution/stream.h"

#include <algorithm>

#include "ir/support/config.h"
#include "ir/support/fork.h"
#include "runtime/devices/registry.h"

namespace braze {

namespace {

thread_local std::vector<Stream> guards;

/// Work that does nothing, and marks a position in a stream.
class Marker : public Work {
 public:
  Marker(DeviceDriver& driver, StreamRef stream) : driver_(driver), stream_(std::move(stream)) {}

 protected:
  void execute() override { fence_ = driver_.fence(stream_.get()); }

 private:
  DeviceDriver& driver_;
  const StreamRef stream_;
};

/// Work that makes later work wait for an event of another device.
class Gate : public Work {
 public:
  explicit Gate(Event event) : event_(std::move(event)) {}

 protected:
  void execute() override { event_.wait(); }
  void release() noexcept override { event_ = {}; }

 private:
  Event event_;
};

}  // namespace

// --- Event --------------------------------------------------------------------------------------

void Event::wait() const {
  if (!state_) return;
  if (state_->fence) return state_->fence->wait();
  state_->driver.queue().wait(*state_->work);
}

bool Event::done() const {
  if (!state_) return true;
  return state_->fence ? state_->fence->done() : state_->work->done();
}

void* Event::native() const { return state_ && state_->fence ? state_->fence->native() : nullptr; }

// --- Stream -------------------------------------------------------------------------------------

namespace {

Stream make_stream(const Device& device, std::optional<void*> foreign) {
  DeviceDriver& driver = Registry::get().driver(device);
  return {driver, driver.make_stream(foreign)};
}

}  // namespace

Stream::Stream(const Device& device) : Stream(make_stream(device, std::nullopt)) {}

Stream Stream::main(const Device& device) { return {Registry::get().driver(device), nullptr}; }

Stream Stream::of_host(const Device& device, void* cuda_stream) {
  return make_stream(device, cuda_stream);
}

Device Stream::device() const { return driver_->device(); }

void* Stream::native() const { return stream_ ? stream_->native() : driver_->main_stream(); }

Event Stream::record() const {
  const auto marker = std::make_shared<Marker>(*driver_, stream_);
  driver_->queue().submit(
      marker, 0, [] {}, pool_of(stream_.get()));
  if (driver_->has_host_memory()) return Event(std::make_shared<Event::State>(*driver_, marker));
  // Another thread may be submitting earlier calls of this thread. They come before the event.
  driver_->queue().wait(*marker);
  marker->rethrow();
  return Event(std::make_shared<Event::State>(*driver_, marker->fence()));
}

void Stream::wait(const Event& event) const {
  if (!event.state()) return;
  const bool on_host = driver_->has_host_memory();
  if (!on_host && event.state()->fence) {
    driver_->wait_for(stream_.get(), *event.state()->fence);
  } else if (on_host && &event.state()->driver != driver_) {
    driver_->queue().submit(std::make_shared<Gate>(event), 0, [] {});
  } else if (!on_host) {
    event.wait();  // the host waits, because a GPU cannot wait for it
  }
}

void Stream::wait_native(void* cuda_event) const {
  driver_->wait_for_native(stream_.get(), cuda_event);
}

void Stream::synchronize() const { record().wait(); }

void enter_stream(Stream stream) { guards.push_back(std::move(stream)); }

void leave_stream() noexcept {
  if (!guards.empty()) return guards.pop_back();
  write_log(LogLevel::Error,
            "a StreamGuard ended on a thread other than the one on which it began, whose calls go "
            "on in its stream");
}

StreamGuard::StreamGuard(Stream stream) { enter_stream(std::move(stream)); }

StreamGuard::~StreamGuard() { leave_stream(); }

StreamRef current_stream_of(const DeviceDriver& driver) {
  for (size_t i = guards.size(); i-- > 0;) {
    if (&guards[i].driver() == &driver) return guards[i].stream();
  }
  return nullptr;
}

Stream current_stream(const Device& device) {
  DeviceDriver& driver = Registry::get().driver(device);
  return {driver, current_stream_of(driver)};
}

// --- PinnedMemory -------------------------------------------------------------------------------

PinnedMemory::State::State(DeviceDriver& of, size_t bytes)
    : driver(of), size(bytes), data(bytes > 0 ? of.allocate_pinned(bytes) : nullptr) {}

PinnedMemory::State::~State() {
  if (is_forked() || !data) return;
  for (const auto& use : uses) {
    try {
      use->wait();
    } catch (const std::exception&) {
      return;  // a failed device may still write there
    }
  }
  driver.free_pinned(data, size);
}

void PinnedMemory::State::add_use(std::shared_ptr<Fence> fence) {
  const std::lock_guard lock(mutex);
  std::erase_if(uses, [](const auto& use) { return use->done(); });
  uses.push_back(std::move(fence));
}

PinnedMemory::PinnedMemory(size_t bytes, const Device& device)
    : state_(std::make_shared<State>(Registry::get().driver(device), bytes)) {}

std::span<std::byte> PinnedMemory::bytes() const { return {state_->data, state_->size}; }

}  // namespace braze
