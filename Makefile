# Chores that are not part of the package's build.
PYTHON ?= python
NATIVE_BUILD ?= build/check-native

.PHONY: check-native format-native

# Build the native part with AddressSanitizer and UndefinedBehaviorSanitizer and run its check program.
check-native:
	cmake -S . -B $(NATIVE_BUILD) -G Ninja -DCMAKE_BUILD_TYPE=Debug -DCOLLAGE_SANITIZE=ON -DCOLLAGE_CHECK=ON \
	  -DPython_EXECUTABLE="$$($(PYTHON) -c 'import sys; print(sys.executable)')"
	cmake --build $(NATIVE_BUILD)
	$(NATIVE_BUILD)/check_native

format-native:
	find unity_collage/runtime/src -name '*.cc' -o -name '*.h' | xargs clang-format -i
