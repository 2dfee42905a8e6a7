module @jit_step attributes {mhlo.num_partitions = 1 : i32, mhlo.num_replicas = 1 : i32} {
  func.func public @main(%arg0: tensor<12x8xf32> {tf.aliasing_output = 0 : i32}, %arg1: tensor<7x8xf32> {tf.aliasing_output = 1 : i32}, %arg2: tensor<8x8xf32> {tf.aliasing_output = 2 : i32}, %arg3: tensor<8x24xf32> {tf.aliasing_output = 3 : i32}, %arg4: tensor<8x12xf32> {tf.aliasing_output = 4 : i32}, %arg5: tensor<12x8xf32> {tf.aliasing_output = 5 : i32}, %arg6: tensor<7x8xf32> {tf.aliasing_output = 6 : i32}, %arg7: tensor<8x8xf32> {tf.aliasing_output = 7 : i32}, %arg8: tensor<8x24xf32> {tf.aliasing_output = 8 : i32}, %arg9: tensor<8x12xf32> {tf.aliasing_output = 9 : i32}, %arg10: tensor<2xui32>, %arg11: tensor<2x6xi32>) -> (tensor<12x8xf32> {jax.result_info = "result[0]['down']"}, tensor<7x8xf32> {jax.result_info = "result[0]['embed']"}, tensor<8x8xf32> {jax.result_info = "result[0]['out']"}, tensor<8x24xf32> {jax.result_info = "result[0]['qkv']"}, tensor<8x12xf32> {jax.result_info = "result[0]['up']"}, tensor<12x8xf32> {jax.result_info = "result[1]['down']"}, tensor<7x8xf32> {jax.result_info = "result[1]['embed']"}, tensor<8x8xf32> {jax.result_info = "result[1]['out']"}, tensor<8x24xf32> {jax.result_info = "result[1]['qkv']"}, tensor<8x12xf32> {jax.result_info = "result[1]['up']"}, tensor<f32> {jax.result_info = "result[2]"}) {
    %0 = stablehlo.slice %arg11 [0:2, 0:5] : (tensor<2x6xi32>) -> tensor<2x5xi32>
    %c = stablehlo.constant dense<0> : tensor<i32>
    %1 = stablehlo.broadcast_in_dim %c, dims = [] : (tensor<i32>) -> tensor<2x5xi32>
    %2 = stablehlo.compare LT, %0, %1, SIGNED : (tensor<2x5xi32>, tensor<2x5xi32>) -> tensor<2x5xi1>
    %c_0 = stablehlo.constant dense<7> : tensor<i32>
    %3 = stablehlo.broadcast_in_dim %c_0, dims = [] : (tensor<i32>) -> tensor<2x5xi32>
    %4 = stablehlo.add %0, %3 : tensor<2x5xi32>
    %5 = stablehlo.select %2, %4, %0 : tensor<2x5xi1>, tensor<2x5xi32>
    %6 = stablehlo.broadcast_in_dim %5, dims = [0, 1] : (tensor<2x5xi32>) -> tensor<2x5x1xi32>
    %7 = "stablehlo.gather"(%arg1, %6) <{dimension_numbers = #stablehlo.gather<offset_dims = [2], collapsed_slice_dims = [0], start_index_map = [0], index_vector_dim = 2>, indices_are_sorted = false, slice_sizes = array<i64: 1, 8>}> : (tensor<7x8xf32>, tensor<2x5x1xi32>) -> tensor<2x5x8xf32>
    %cst = stablehlo.constant dense<0.000000e+00> : tensor<f32>
    %8 = stablehlo.reduce(%7 init: %cst) applies stablehlo.add across dimensions = [2] : (tensor<2x5x8xf32>, tensor<f32>) -> tensor<2x5xf32>
    %9 = stablehlo.broadcast_in_dim %8, dims = [0, 1] : (tensor<2x5xf32>) -> tensor<2x5x1xf32>
    %cst_1 = stablehlo.constant dense<8.000000e+00> : tensor<f32>
    %10 = stablehlo.broadcast_in_dim %cst_1, dims = [] : (tensor<f32>) -> tensor<2x5x1xf32>
    %11 = stablehlo.divide %9, %10 : tensor<2x5x1xf32>
    %12 = stablehlo.broadcast_in_dim %11, dims = [0, 1, 2] : (tensor<2x5x1xf32>) -> tensor<2x5x8xf32>
    %13 = stablehlo.subtract %7, %12 : tensor<2x5x8xf32>
    %c_2 = stablehlo.constant dense<0> : tensor<i32>
    %14:4 = call @_var(%7, %c_2) : (tensor<2x5x8xf32>, tensor<i32>) -> (tensor<2x5x1xf32>, tensor<2x5x8xf32>, tensor<f32>, tensor<i1>)
    %cst_3 = stablehlo.constant dense<9.99999974E-6> : tensor<f32>
    %15 = stablehlo.broadcast_in_dim %cst_3, dims = [] : (tensor<f32>) -> tensor<2x5x1xf32>
    %16 = stablehlo.add %14#0, %15 : tensor<2x5x1xf32>
    %17 = stablehlo.rsqrt %16 : tensor<2x5x1xf32>
    %18 = stablehlo.divide %17, %16 : tensor<2x5x1xf32>
    %cst_4 = stablehlo.constant dense<-5.000000e-01> : tensor<f32>
    %19 = stablehlo.broadcast_in_dim %cst_4, dims = [] : (tensor<f32>) -> tensor<2x5x1xf32>
    %20 = stablehlo.multiply %19, %18 : tensor<2x5x1xf32>
    %21 = stablehlo.broadcast_in_dim %17, dims = [0, 1, 2] : (tensor<2x5x1xf32>) -> tensor<2x5x8xf32>
    %22 = stablehlo.multiply %13, %21 : tensor<2x5x8xf32>
    %23 = stablehlo.dot_general %22, %arg3, contracting_dims = [2] x [0], precision = [DEFAULT, DEFAULT] : (tensor<2x5x8xf32>, tensor<8x24xf32>) -> tensor<2x5x24xf32>
    %24 = stablehlo.slice %23 [0:2, 0:5, 0:8] : (tensor<2x5x24xf32>) -> tensor<2x5x8xf32>
    %25 = stablehlo.slice %23 [0:2, 0:5, 8:16] : (tensor<2x5x24xf32>) -> tensor<2x5x8xf32>
    %26 = stablehlo.slice %23 [0:2, 0:5, 16:24] : (tensor<2x5x24xf32>) -> tensor<2x5x8xf32>
    %27 = stablehlo.reshape %24 : (tensor<2x5x8xf32>) -> tensor<2x5x2x4xf32>
    %28 = stablehlo.reshape %25 : (tensor<2x5x8xf32>) -> tensor<2x5x2x4xf32>
    %29 = stablehlo.dot_general %27, %28, batching_dims = [0, 2] x [0, 2], contracting_dims = [3] x [3], precision = [DEFAULT, DEFAULT] : (tensor<2x5x2x4xf32>, tensor<2x5x2x4xf32>) -> tensor<2x2x5x5xf32>
    %cst_5 = stablehlo.constant dense<3.000000e+00> : tensor<f32>
    %30 = stablehlo.broadcast_in_dim %cst_5, dims = [] : (tensor<f32>) -> tensor<2x2x5x5xf32>
    %31 = stablehlo.divide %29, %30 : tensor<2x2x5x5xf32>
    %c_6 = stablehlo.constant dense<true> : tensor<i1>
    %32 = stablehlo.broadcast_in_dim %c_6, dims = [] : (tensor<i1>) -> tensor<5x5xi1>
    %33 = call @tril(%32) : (tensor<5x5xi1>) -> tensor<5x5xi1>
    %cst_7 = stablehlo.constant dense<0xFF800000> : tensor<f32>
    %34:2 = call @_where_0(%33, %31, %cst_7) : (tensor<5x5xi1>, tensor<2x2x5x5xf32>, tensor<f32>) -> (tensor<2x2x5x5xf32>, tensor<2x2x5x5xi1>)
    %cst_8 = stablehlo.constant dense<0xFF800000> : tensor<f32>
    %35 = stablehlo.reduce(%34#0 init: %cst_8) applies stablehlo.maximum across dimensions = [3] : (tensor<2x2x5x5xf32>, tensor<f32>) -> tensor<2x2x5xf32>
    %cst_9 = stablehlo.constant dense<0xFF800000> : tensor<f32>
    %36 = stablehlo.broadcast_in_dim %cst_9, dims = [] : (tensor<f32>) -> tensor<2x2x5xf32>
    %37 = stablehlo.maximum %36, %35 : tensor<2x2x5xf32>
    %38 = stablehlo.broadcast_in_dim %37, dims = [0, 1, 2] : (tensor<2x2x5xf32>) -> tensor<2x2x5x1xf32>
    %39 = stablehlo.broadcast_in_dim %38, dims = [0, 1, 2, 3] : (tensor<2x2x5x1xf32>) -> tensor<2x2x5x5xf32>
    %40 = stablehlo.subtract %34#0, %39 : tensor<2x2x5x5xf32>
    %41 = stablehlo.exponential %40 : tensor<2x2x5x5xf32>
    %cst_10 = stablehlo.constant dense<0.000000e+00> : tensor<f32>
    %42 = stablehlo.reduce(%41 init: %cst_10) applies stablehlo.add across dimensions = [3] : (tensor<2x2x5x5xf32>, tensor<f32>) -> tensor<2x2x5xf32>
    %43 = stablehlo.broadcast_in_dim %42, dims = [0, 1, 2] : (tensor<2x2x5xf32>) -> tensor<2x2x5x1xf32>
    %44 = stablehlo.broadcast_in_dim %43, dims = [0, 1, 2, 3] : (tensor<2x2x5x1xf32>) -> tensor<2x2x5x5xf32>
    %45 = stablehlo.divide %41, %44 : tensor<2x2x5x5xf32>
    %46 = stablehlo.multiply %43, %43 : tensor<2x2x5x1xf32>
    %cst_11 = stablehlo.constant dense<1.000000e+00> : tensor<f32>
    %47 = stablehlo.broadcast_in_dim %cst_11, dims = [] : (tensor<f32>) -> tensor<2x2x5x1xf32>
    %48 = stablehlo.divide %47, %46 : tensor<2x2x5x1xf32>
    %49 = stablehlo.reshape %26 : (tensor<2x5x8xf32>) -> tensor<2x5x2x4xf32>
    %50 = stablehlo.dot_general %49, %45, batching_dims = [0, 2] x [0, 1], contracting_dims = [1] x [3], precision = [DEFAULT, DEFAULT] : (tensor<2x5x2x4xf32>, tensor<2x2x5x5xf32>) -> tensor<2x2x4x5xf32>
    %51 = stablehlo.transpose %50, dims = [0, 3, 1, 2] : (tensor<2x2x4x5xf32>) -> tensor<2x5x2x4xf32>
    %52 = stablehlo.reshape %51 : (tensor<2x5x2x4xf32>) -> tensor<2x5x8xf32>
    %cst_12 = stablehlo.constant dense<0.000000e+00> : tensor<f32>
    %cst_13 = stablehlo.constant dense<1.000000e+00> : tensor<f32>
    %53 = call @_uniform(%arg10, %cst_12, %cst_13) : (tensor<2xui32>, tensor<f32>, tensor<f32>) -> tensor<2x5x8xf32>
    %cst_14 = stablehlo.constant dense<0.899999976> : tensor<f32>
    %54 = stablehlo.broadcast_in_dim %cst_14, dims = [] : (tensor<f32>) -> tensor<2x5x8xf32>
    %55 = stablehlo.compare LT, %53, %54, FLOAT : (tensor<2x5x8xf32>, tensor<2x5x8xf32>) -> tensor<2x5x8xi1>
    %56 = stablehlo.dot_general %52, %arg2, contracting_dims = [2] x [0], precision = [DEFAULT, DEFAULT] : (tensor<2x5x8xf32>, tensor<8x8xf32>) -> tensor<2x5x8xf32>
    %cst_15 = stablehlo.constant dense<0.899999976> : tensor<f32>
    %57 = stablehlo.broadcast_in_dim %cst_15, dims = [] : (tensor<f32>) -> tensor<2x5x8xf32>
    %58 = stablehlo.divide %56, %57 : tensor<2x5x8xf32>
    %c_16 = stablehlo.constant dense<0> : tensor<i32>
    %59 = call @_where_1(%55, %58, %c_16) : (tensor<2x5x8xi1>, tensor<2x5x8xf32>, tensor<i32>) -> tensor<2x5x8xf32>
    %60 = stablehlo.add %7, %59 : tensor<2x5x8xf32>
    %cst_17 = stablehlo.constant dense<0.000000e+00> : tensor<f32>
    %61 = stablehlo.reduce(%60 init: %cst_17) applies stablehlo.add across dimensions = [2] : (tensor<2x5x8xf32>, tensor<f32>) -> tensor<2x5xf32>
    %62 = stablehlo.broadcast_in_dim %61, dims = [0, 1] : (tensor<2x5xf32>) -> tensor<2x5x1xf32>
    %cst_18 = stablehlo.constant dense<8.000000e+00> : tensor<f32>
    %63 = stablehlo.broadcast_in_dim %cst_18, dims = [] : (tensor<f32>) -> tensor<2x5x1xf32>
    %64 = stablehlo.divide %62, %63 : tensor<2x5x1xf32>
    %65 = stablehlo.broadcast_in_dim %64, dims = [0, 1, 2] : (tensor<2x5x1xf32>) -> tensor<2x5x8xf32>
    %66 = stablehlo.subtract %60, %65 : tensor<2x5x8xf32>
    %c_19 = stablehlo.constant dense<0> : tensor<i32>
    %67:4 = call @_var(%60, %c_19) : (tensor<2x5x8xf32>, tensor<i32>) -> (tensor<2x5x1xf32>, tensor<2x5x8xf32>, tensor<f32>, tensor<i1>)
    %cst_20 = stablehlo.constant dense<9.99999974E-6> : tensor<f32>
    %68 = stablehlo.broadcast_in_dim %cst_20, dims = [] : (tensor<f32>) -> tensor<2x5x1xf32>
    %69 = stablehlo.add %67#0, %68 : tensor<2x5x1xf32>
    %70 = stablehlo.rsqrt %69 : tensor<2x5x1xf32>
    %71 = stablehlo.divide %70, %69 : tensor<2x5x1xf32>
    %cst_21 = stablehlo.constant dense<-5.000000e-01> : tensor<f32>
    %72 = stablehlo.broadcast_in_dim %cst_21, dims = [] : (tensor<f32>) -> tensor<2x5x1xf32>
    %73 = stablehlo.multiply %72, %71 : tensor<2x5x1xf32>
    %74 = stablehlo.broadcast_in_dim %70, dims = [0, 1, 2] : (tensor<2x5x1xf32>) -> tensor<2x5x8xf32>
    %75 = stablehlo.multiply %66, %74 : tensor<2x5x8xf32>
    %76 = stablehlo.dot_general %75, %arg4, contracting_dims = [2] x [0], precision = [DEFAULT, DEFAULT] : (tensor<2x5x8xf32>, tensor<8x12xf32>) -> tensor<2x5x12xf32>
    %77 = stablehlo.multiply %76, %76 : tensor<2x5x12xf32>
    %78 = stablehlo.multiply %77, %76 : tensor<2x5x12xf32>
    %79 = stablehlo.multiply %76, %76 : tensor<2x5x12xf32>
    %cst_22 = stablehlo.constant dense<3.000000e+00> : tensor<f32>
    %80 = stablehlo.broadcast_in_dim %cst_22, dims = [] : (tensor<f32>) -> tensor<2x5x12xf32>
    %81 = stablehlo.multiply %80, %79 : tensor<2x5x12xf32>
    %cst_23 = stablehlo.constant dense<4.471500e-02> : tensor<f32>
    %82 = stablehlo.broadcast_in_dim %cst_23, dims = [] : (tensor<f32>) -> tensor<2x5x12xf32>
    %83 = stablehlo.multiply %82, %78 : tensor<2x5x12xf32>
    %84 = stablehlo.add %76, %83 : tensor<2x5x12xf32>
    %cst_24 = stablehlo.constant dense<0.797884583> : tensor<f32>
    %85 = stablehlo.broadcast_in_dim %cst_24, dims = [] : (tensor<f32>) -> tensor<2x5x12xf32>
    %86 = stablehlo.multiply %85, %84 : tensor<2x5x12xf32>
    %87 = stablehlo.tanh %86 : tensor<2x5x12xf32>
    %cst_25 = stablehlo.constant dense<1.000000e+00> : tensor<f32>
    %88 = stablehlo.broadcast_in_dim %cst_25, dims = [] : (tensor<f32>) -> tensor<2x5x12xf32>
    %89 = stablehlo.subtract %88, %87 : tensor<2x5x12xf32>
    %cst_26 = stablehlo.constant dense<1.000000e+00> : tensor<f32>
    %90 = stablehlo.broadcast_in_dim %cst_26, dims = [] : (tensor<f32>) -> tensor<2x5x12xf32>
    %91 = stablehlo.add %90, %87 : tensor<2x5x12xf32>
    %cst_27 = stablehlo.constant dense<5.000000e-01> : tensor<f32>
    %92 = stablehlo.broadcast_in_dim %cst_27, dims = [] : (tensor<f32>) -> tensor<2x5x12xf32>
    %93 = stablehlo.multiply %92, %91 : tensor<2x5x12xf32>
    %94 = stablehlo.multiply %76, %93 : tensor<2x5x12xf32>
    %95 = stablehlo.dot_general %94, %arg0, contracting_dims = [2] x [0], precision = [DEFAULT, DEFAULT] : (tensor<2x5x12xf32>, tensor<12x8xf32>) -> tensor<2x5x8xf32>
    %96 = stablehlo.add %60, %95 : tensor<2x5x8xf32>
    %cst_28 = stablehlo.constant dense<0.000000e+00> : tensor<f32>
    %97 = stablehlo.reduce(%96 init: %cst_28) applies stablehlo.add across dimensions = [2] : (tensor<2x5x8xf32>, tensor<f32>) -> tensor<2x5xf32>
    %98 = stablehlo.broadcast_in_dim %97, dims = [0, 1] : (tensor<2x5xf32>) -> tensor<2x5x1xf32>
    %cst_29 = stablehlo.constant dense<8.000000e+00> : tensor<f32>
    %99 = stablehlo.broadcast_in_dim %cst_29, dims = [] : (tensor<f32>) -> tensor<2x5x1xf32>
    %100 = stablehlo.divide %98, %99 : tensor<2x5x1xf32>
    %101 = stablehlo.broadcast_in_dim %100, dims = [0, 1, 2] : (tensor<2x5x1xf32>) -> tensor<2x5x8xf32>
    %102 = stablehlo.subtract %96, %101 : tensor<2x5x8xf32>
    %c_30 = stablehlo.constant dense<0> : tensor<i32>
    %103:4 = call @_var(%96, %c_30) : (tensor<2x5x8xf32>, tensor<i32>) -> (tensor<2x5x1xf32>, tensor<2x5x8xf32>, tensor<f32>, tensor<i1>)
    %cst_31 = stablehlo.constant dense<9.99999974E-6> : tensor<f32>
    %104 = stablehlo.broadcast_in_dim %cst_31, dims = [] : (tensor<f32>) -> tensor<2x5x1xf32>
    %105 = stablehlo.add %103#0, %104 : tensor<2x5x1xf32>
    %106 = stablehlo.rsqrt %105 : tensor<2x5x1xf32>
    %107 = stablehlo.divide %106, %105 : tensor<2x5x1xf32>
    %cst_32 = stablehlo.constant dense<-5.000000e-01> : tensor<f32>
    %108 = stablehlo.broadcast_in_dim %cst_32, dims = [] : (tensor<f32>) -> tensor<2x5x1xf32>
    %109 = stablehlo.multiply %108, %107 : tensor<2x5x1xf32>
    %110 = stablehlo.broadcast_in_dim %106, dims = [0, 1, 2] : (tensor<2x5x1xf32>) -> tensor<2x5x8xf32>
    %111 = stablehlo.multiply %102, %110 : tensor<2x5x8xf32>
    %112 = stablehlo.transpose %arg1, dims = [1, 0] : (tensor<7x8xf32>) -> tensor<8x7xf32>
    %113 = stablehlo.dot_general %111, %112, contracting_dims = [2] x [0], precision = [DEFAULT, DEFAULT] : (tensor<2x5x8xf32>, tensor<8x7xf32>) -> tensor<2x5x7xf32>
    %114:3 = call @log_softmax(%113) : (tensor<2x5x7xf32>) -> (tensor<2x5x7xf32>, tensor<2x5x7xf32>, tensor<2x5x1xf32>)
    %115 = stablehlo.slice %arg11 [0:2, 1:6] : (tensor<2x6xi32>) -> tensor<2x5xi32>
    %116 = stablehlo.broadcast_in_dim %115, dims = [0, 1] : (tensor<2x5xi32>) -> tensor<2x5x1xi32>
    %117:2 = call @take_along_axis(%114#0, %116) : (tensor<2x5x7xf32>, tensor<2x5x1xi32>) -> (tensor<2x5x1xf32>, tensor<2x5x1x1xi32>)
    %cst_33 = stablehlo.constant dense<0.000000e+00> : tensor<f32>
    %118 = stablehlo.reduce(%117#0 init: %cst_33) applies stablehlo.add across dimensions = [0, 1, 2] : (tensor<2x5x1xf32>, tensor<f32>) -> tensor<f32>
    %cst_34 = stablehlo.constant dense<1.000000e+01> : tensor<f32>
    %119 = stablehlo.divide %118, %cst_34 : tensor<f32>
    %120 = stablehlo.negate %119 : tensor<f32>
    %cst_35 = stablehlo.constant dense<1.000000e+00> : tensor<f32>
    %121 = stablehlo.negate %cst_35 : tensor<f32>
    %cst_36 = stablehlo.constant dense<1.000000e+01> : tensor<f32>
    %122 = stablehlo.divide %121, %cst_36 : tensor<f32>
    %123 = stablehlo.broadcast_in_dim %122, dims = [] : (tensor<f32>) -> tensor<2x5x1xf32>
    %124 = call @take_along_axis_2(%117#1, %123) : (tensor<2x5x1x1xi32>, tensor<2x5x1xf32>) -> tensor<2x5x7xf32>
    %125 = call @log_softmax_3(%114#1, %114#2, %124) : (tensor<2x5x7xf32>, tensor<2x5x1xf32>, tensor<2x5x7xf32>) -> tensor<2x5x7xf32>
    %126 = stablehlo.dot_general %125, %111, contracting_dims = [0, 1] x [0, 1], precision = [DEFAULT, DEFAULT] : (tensor<2x5x7xf32>, tensor<2x5x8xf32>) -> tensor<7x8xf32>
    %127 = stablehlo.transpose %126, dims = [1, 0] : (tensor<7x8xf32>) -> tensor<8x7xf32>
    %128 = stablehlo.dot_general %125, %112, contracting_dims = [2] x [1], precision = [DEFAULT, DEFAULT] : (tensor<2x5x7xf32>, tensor<8x7xf32>) -> tensor<2x5x8xf32>
    %129 = stablehlo.transpose %127, dims = [1, 0] : (tensor<8x7xf32>) -> tensor<7x8xf32>
    %130 = stablehlo.multiply %102, %128 : tensor<2x5x8xf32>
    %cst_37 = stablehlo.constant dense<0.000000e+00> : tensor<f32>
    %131 = stablehlo.reduce(%130 init: %cst_37) applies stablehlo.add across dimensions = [2] : (tensor<2x5x8xf32>, tensor<f32>) -> tensor<2x5xf32>
    %132 = stablehlo.reshape %131 : (tensor<2x5xf32>) -> tensor<2x5x1xf32>
    %133 = stablehlo.broadcast_in_dim %106, dims = [0, 1, 2] : (tensor<2x5x1xf32>) -> tensor<2x5x8xf32>
    %134 = stablehlo.multiply %128, %133 : tensor<2x5x8xf32>
    %135 = stablehlo.multiply %132, %109 : tensor<2x5x1xf32>
    %136 = call @_var_4(%103#1, %103#2, %103#3, %135) : (tensor<2x5x8xf32>, tensor<f32>, tensor<i1>, tensor<2x5x1xf32>) -> tensor<2x5x8xf32>
    %137 = stablehlo.negate %134 : tensor<2x5x8xf32>
    %cst_38 = stablehlo.constant dense<0.000000e+00> : tensor<f32>
    %138 = stablehlo.reduce(%137 init: %cst_38) applies stablehlo.add across dimensions = [2] : (tensor<2x5x8xf32>, tensor<f32>) -> tensor<2x5xf32>
    %139 = stablehlo.reshape %138 : (tensor<2x5xf32>) -> tensor<2x5x1xf32>
    %140 = stablehlo.add %136, %134 : tensor<2x5x8xf32>
    %cst_39 = stablehlo.constant dense<8.000000e+00> : tensor<f32>
    %141 = stablehlo.broadcast_in_dim %cst_39, dims = [] : (tensor<f32>) -> tensor<2x5x1xf32>
    %142 = stablehlo.divide %139, %141 : tensor<2x5x1xf32>
    %cst_40 = stablehlo.constant dense<0.000000e+00> : tensor<f32>
    %143 = stablehlo.reduce(%142 init: %cst_40) applies stablehlo.add across dimensions = [2] : (tensor<2x5x1xf32>, tensor<f32>) -> tensor<2x5xf32>
    %144 = stablehlo.broadcast_in_dim %143, dims = [0, 1] : (tensor<2x5xf32>) -> tensor<2x5x8xf32>
    %145 = stablehlo.add %140, %144 : tensor<2x5x8xf32>
    %146 = stablehlo.dot_general %145, %94, contracting_dims = [0, 1] x [0, 1], precision = [DEFAULT, DEFAULT] : (tensor<2x5x8xf32>, tensor<2x5x12xf32>) -> tensor<8x12xf32>
    %147 = stablehlo.transpose %146, dims = [1, 0] : (tensor<8x12xf32>) -> tensor<12x8xf32>
    %148 = stablehlo.dot_general %145, %arg0, contracting_dims = [2] x [1], precision = [DEFAULT, DEFAULT] : (tensor<2x5x8xf32>, tensor<12x8xf32>) -> tensor<2x5x12xf32>
    %149 = stablehlo.multiply %76, %148 : tensor<2x5x12xf32>
    %150 = stablehlo.multiply %148, %93 : tensor<2x5x12xf32>
    %cst_41 = stablehlo.constant dense<5.000000e-01> : tensor<f32>
    %151 = stablehlo.broadcast_in_dim %cst_41, dims = [] : (tensor<f32>) -> tensor<2x5x12xf32>
    %152 = stablehlo.multiply %151, %149 : tensor<2x5x12xf32>
    %153 = stablehlo.multiply %152, %89 : tensor<2x5x12xf32>
    %154 = stablehlo.multiply %153, %87 : tensor<2x5x12xf32>
    %155 = stablehlo.add %153, %154 : tensor<2x5x12xf32>
    %cst_42 = stablehlo.constant dense<0.797884583> : tensor<f32>
    %156 = stablehlo.broadcast_in_dim %cst_42, dims = [] : (tensor<f32>) -> tensor<2x5x12xf32>
    %157 = stablehlo.multiply %156, %155 : tensor<2x5x12xf32>
    %158 = stablehlo.add %150, %157 : tensor<2x5x12xf32>
    %cst_43 = stablehlo.constant dense<4.471500e-02> : tensor<f32>
    %159 = stablehlo.broadcast_in_dim %cst_43, dims = [] : (tensor<f32>) -> tensor<2x5x12xf32>
    %160 = stablehlo.multiply %159, %157 : tensor<2x5x12xf32>
    %161 = stablehlo.multiply %160, %81 : tensor<2x5x12xf32>
    %162 = stablehlo.add %158, %161 : tensor<2x5x12xf32>
    %163 = stablehlo.dot_general %162, %75, contracting_dims = [0, 1] x [0, 1], precision = [DEFAULT, DEFAULT] : (tensor<2x5x12xf32>, tensor<2x5x8xf32>) -> tensor<12x8xf32>
    %164 = stablehlo.transpose %163, dims = [1, 0] : (tensor<12x8xf32>) -> tensor<8x12xf32>
    %165 = stablehlo.dot_general %162, %arg4, contracting_dims = [2] x [1], precision = [DEFAULT, DEFAULT] : (tensor<2x5x12xf32>, tensor<8x12xf32>) -> tensor<2x5x8xf32>
    %166 = stablehlo.multiply %66, %165 : tensor<2x5x8xf32>
    %cst_44 = stablehlo.constant dense<0.000000e+00> : tensor<f32>
    %167 = stablehlo.reduce(%166 init: %cst_44) applies stablehlo.add across dimensions = [2] : (tensor<2x5x8xf32>, tensor<f32>) -> tensor<2x5xf32>
    %168 = stablehlo.reshape %167 : (tensor<2x5xf32>) -> tensor<2x5x1xf32>
    %169 = stablehlo.broadcast_in_dim %70, dims = [0, 1, 2] : (tensor<2x5x1xf32>) -> tensor<2x5x8xf32>
    %170 = stablehlo.multiply %165, %169 : tensor<2x5x8xf32>
    %171 = stablehlo.multiply %168, %73 : tensor<2x5x1xf32>
    %172 = call @_var_4(%67#1, %67#2, %67#3, %171) : (tensor<2x5x8xf32>, tensor<f32>, tensor<i1>, tensor<2x5x1xf32>) -> tensor<2x5x8xf32>
    %173 = stablehlo.add %145, %172 : tensor<2x5x8xf32>
    %174 = stablehlo.negate %170 : tensor<2x5x8xf32>
    %cst_45 = stablehlo.constant dense<0.000000e+00> : tensor<f32>
    %175 = stablehlo.reduce(%174 init: %cst_45) applies stablehlo.add across dimensions = [2] : (tensor<2x5x8xf32>, tensor<f32>) -> tensor<2x5xf32>
    %176 = stablehlo.reshape %175 : (tensor<2x5xf32>) -> tensor<2x5x1xf32>
    %177 = stablehlo.add %173, %170 : tensor<2x5x8xf32>
    %cst_46 = stablehlo.constant dense<8.000000e+00> : tensor<f32>
    %178 = stablehlo.broadcast_in_dim %cst_46, dims = [] : (tensor<f32>) -> tensor<2x5x1xf32>
    %179 = stablehlo.divide %176, %178 : tensor<2x5x1xf32>
    %cst_47 = stablehlo.constant dense<0.000000e+00> : tensor<f32>
    %180 = stablehlo.reduce(%179 init: %cst_47) applies stablehlo.add across dimensions = [2] : (tensor<2x5x1xf32>, tensor<f32>) -> tensor<2x5xf32>
    %181 = stablehlo.broadcast_in_dim %180, dims = [0, 1] : (tensor<2x5xf32>) -> tensor<2x5x8xf32>
    %182 = stablehlo.add %177, %181 : tensor<2x5x8xf32>
    %183 = call @_where_6(%55, %182) : (tensor<2x5x8xi1>, tensor<2x5x8xf32>) -> tensor<2x5x8xf32>
    %cst_48 = stablehlo.constant dense<0.899999976> : tensor<f32>
    %184 = stablehlo.broadcast_in_dim %cst_48, dims = [] : (tensor<f32>) -> tensor<2x5x8xf32>
    %185 = stablehlo.divide %183, %184 : tensor<2x5x8xf32>
    %186 = stablehlo.dot_general %185, %52, contracting_dims = [0, 1] x [0, 1], precision = [DEFAULT, DEFAULT] : (tensor<2x5x8xf32>, tensor<2x5x8xf32>) -> tensor<8x8xf32>
    %187 = stablehlo.transpose %186, dims = [1, 0] : (tensor<8x8xf32>) -> tensor<8x8xf32>
    %188 = stablehlo.dot_general %185, %arg2, contracting_dims = [2] x [1], precision = [DEFAULT, DEFAULT] : (tensor<2x5x8xf32>, tensor<8x8xf32>) -> tensor<2x5x8xf32>
    %189 = stablehlo.reshape %188 : (tensor<2x5x8xf32>) -> tensor<2x5x2x4xf32>
    %190 = stablehlo.transpose %189, dims = [0, 2, 3, 1] : (tensor<2x5x2x4xf32>) -> tensor<2x2x4x5xf32>
    %191 = stablehlo.dot_general %190, %49, batching_dims = [0, 1] x [0, 2], contracting_dims = [2] x [3], precision = [DEFAULT, DEFAULT] : (tensor<2x2x4x5xf32>, tensor<2x5x2x4xf32>) -> tensor<2x2x5x5xf32>
    %192 = stablehlo.dot_general %190, %45, batching_dims = [0, 1] x [0, 1], contracting_dims = [3] x [2], precision = [DEFAULT, DEFAULT] : (tensor<2x2x4x5xf32>, tensor<2x2x5x5xf32>) -> tensor<2x2x4x5xf32>
    %193 = stablehlo.transpose %192, dims = [0, 3, 1, 2] : (tensor<2x2x4x5xf32>) -> tensor<2x5x2x4xf32>
    %194 = stablehlo.reshape %193 : (tensor<2x5x2x4xf32>) -> tensor<2x5x8xf32>
    %195 = stablehlo.broadcast_in_dim %48, dims = [0, 1, 2, 3] : (tensor<2x2x5x1xf32>) -> tensor<2x2x5x5xf32>
    %196 = stablehlo.multiply %191, %195 : tensor<2x2x5x5xf32>
    %197 = stablehlo.multiply %196, %41 : tensor<2x2x5x5xf32>
    %cst_49 = stablehlo.constant dense<0.000000e+00> : tensor<f32>
    %198 = stablehlo.reduce(%197 init: %cst_49) applies stablehlo.add across dimensions = [3] : (tensor<2x2x5x5xf32>, tensor<f32>) -> tensor<2x2x5xf32>
    %199 = stablehlo.reshape %198 : (tensor<2x2x5xf32>) -> tensor<2x2x5x1xf32>
    %200 = stablehlo.negate %199 : tensor<2x2x5x1xf32>
    %201 = stablehlo.broadcast_in_dim %43, dims = [0, 1, 2, 3] : (tensor<2x2x5x1xf32>) -> tensor<2x2x5x5xf32>
    %202 = stablehlo.divide %191, %201 : tensor<2x2x5x5xf32>
    %cst_50 = stablehlo.constant dense<0.000000e+00> : tensor<f32>
    %203 = stablehlo.reduce(%200 init: %cst_50) applies stablehlo.add across dimensions = [3] : (tensor<2x2x5x1xf32>, tensor<f32>) -> tensor<2x2x5xf32>
    %204 = stablehlo.broadcast_in_dim %203, dims = [0, 1, 2] : (tensor<2x2x5xf32>) -> tensor<2x2x5x5xf32>
    %205 = stablehlo.add %202, %204 : tensor<2x2x5x5xf32>
    %206 = stablehlo.multiply %205, %41 : tensor<2x2x5x5xf32>
    %207 = call @_where_7(%34#1, %206) : (tensor<2x2x5x5xi1>, tensor<2x2x5x5xf32>) -> tensor<2x2x5x5xf32>
    %cst_51 = stablehlo.constant dense<3.000000e+00> : tensor<f32>
    %208 = stablehlo.broadcast_in_dim %cst_51, dims = [] : (tensor<f32>) -> tensor<2x2x5x5xf32>
    %209 = stablehlo.divide %207, %208 : tensor<2x2x5x5xf32>
    %210 = stablehlo.dot_general %209, %27, batching_dims = [0, 1] x [0, 2], contracting_dims = [2] x [1], precision = [DEFAULT, DEFAULT] : (tensor<2x2x5x5xf32>, tensor<2x5x2x4xf32>) -> tensor<2x2x5x4xf32>
    %211 = stablehlo.transpose %210, dims = [0, 2, 1, 3] : (tensor<2x2x5x4xf32>) -> tensor<2x5x2x4xf32>
    %212 = stablehlo.dot_general %209, %28, batching_dims = [0, 1] x [0, 2], contracting_dims = [3] x [1], precision = [DEFAULT, DEFAULT] : (tensor<2x2x5x5xf32>, tensor<2x5x2x4xf32>) -> tensor<2x2x5x4xf32>
    %213 = stablehlo.transpose %212, dims = [0, 2, 1, 3] : (tensor<2x2x5x4xf32>) -> tensor<2x5x2x4xf32>
    %214 = stablehlo.reshape %211 : (tensor<2x5x2x4xf32>) -> tensor<2x5x8xf32>
    %215 = stablehlo.reshape %213 : (tensor<2x5x2x4xf32>) -> tensor<2x5x8xf32>
    %216 = stablehlo.concatenate %215, %214, %194, dim = 2 : (tensor<2x5x8xf32>, tensor<2x5x8xf32>, tensor<2x5x8xf32>) -> tensor<2x5x24xf32>
    %217 = stablehlo.dot_general %216, %22, contracting_dims = [0, 1] x [0, 1], precision = [DEFAULT, DEFAULT] : (tensor<2x5x24xf32>, tensor<2x5x8xf32>) -> tensor<24x8xf32>
    %218 = stablehlo.transpose %217, dims = [1, 0] : (tensor<24x8xf32>) -> tensor<8x24xf32>
    %219 = stablehlo.dot_general %216, %arg3, contracting_dims = [2] x [1], precision = [DEFAULT, DEFAULT] : (tensor<2x5x24xf32>, tensor<8x24xf32>) -> tensor<2x5x8xf32>
    %220 = stablehlo.multiply %13, %219 : tensor<2x5x8xf32>
    %cst_52 = stablehlo.constant dense<0.000000e+00> : tensor<f32>
    %221 = stablehlo.reduce(%220 init: %cst_52) applies stablehlo.add across dimensions = [2] : (tensor<2x5x8xf32>, tensor<f32>) -> tensor<2x5xf32>
    %222 = stablehlo.reshape %221 : (tensor<2x5xf32>) -> tensor<2x5x1xf32>
    %223 = stablehlo.broadcast_in_dim %17, dims = [0, 1, 2] : (tensor<2x5x1xf32>) -> tensor<2x5x8xf32>
    %224 = stablehlo.multiply %219, %223 : tensor<2x5x8xf32>
    %225 = stablehlo.multiply %222, %20 : tensor<2x5x1xf32>
    %226 = call @_var_4(%14#1, %14#2, %14#3, %225) : (tensor<2x5x8xf32>, tensor<f32>, tensor<i1>, tensor<2x5x1xf32>) -> tensor<2x5x8xf32>
    %227 = stablehlo.add %182, %226 : tensor<2x5x8xf32>
    %228 = stablehlo.negate %224 : tensor<2x5x8xf32>
    %cst_53 = stablehlo.constant dense<0.000000e+00> : tensor<f32>
    %229 = stablehlo.reduce(%228 init: %cst_53) applies stablehlo.add across dimensions = [2] : (tensor<2x5x8xf32>, tensor<f32>) -> tensor<2x5xf32>
    %230 = stablehlo.reshape %229 : (tensor<2x5xf32>) -> tensor<2x5x1xf32>
    %231 = stablehlo.add %227, %224 : tensor<2x5x8xf32>
    %cst_54 = stablehlo.constant dense<8.000000e+00> : tensor<f32>
    %232 = stablehlo.broadcast_in_dim %cst_54, dims = [] : (tensor<f32>) -> tensor<2x5x1xf32>
    %233 = stablehlo.divide %230, %232 : tensor<2x5x1xf32>
    %cst_55 = stablehlo.constant dense<0.000000e+00> : tensor<f32>
    %234 = stablehlo.reduce(%233 init: %cst_55) applies stablehlo.add across dimensions = [2] : (tensor<2x5x1xf32>, tensor<f32>) -> tensor<2x5xf32>
    %235 = stablehlo.broadcast_in_dim %234, dims = [0, 1] : (tensor<2x5xf32>) -> tensor<2x5x8xf32>
    %236 = stablehlo.add %231, %235 : tensor<2x5x8xf32>
    %cst_56 = stablehlo.constant dense<0.000000e+00> : tensor<f32>
    %237 = stablehlo.broadcast_in_dim %cst_56, dims = [] : (tensor<f32>) -> tensor<7x8xf32>
    %238 = "stablehlo.scatter"(%237, %6, %236) <{indices_are_sorted = false, scatter_dimension_numbers = #stablehlo.scatter<update_window_dims = [2], inserted_window_dims = [0], scatter_dims_to_operand_dims = [0], index_vector_dim = 2>, unique_indices = false}> ({
    ^bb0(%arg12: tensor<f32>, %arg13: tensor<f32>):
      %270 = stablehlo.add %arg12, %arg13 : tensor<f32>
      stablehlo.return %270 : tensor<f32>
    }) : (tensor<7x8xf32>, tensor<2x5x1xi32>, tensor<2x5x8xf32>) -> tensor<7x8xf32>
    %239 = stablehlo.add %129, %238 : tensor<7x8xf32>
    %cst_57 = stablehlo.constant dense<0.899999976> : tensor<f32>
    %240 = stablehlo.broadcast_in_dim %cst_57, dims = [] : (tensor<f32>) -> tensor<12x8xf32>
    %241 = stablehlo.multiply %240, %arg5 : tensor<12x8xf32>
    %242 = stablehlo.add %241, %147 : tensor<12x8xf32>
    %cst_58 = stablehlo.constant dense<0.899999976> : tensor<f32>
    %243 = stablehlo.broadcast_in_dim %cst_58, dims = [] : (tensor<f32>) -> tensor<7x8xf32>
    %244 = stablehlo.multiply %243, %arg6 : tensor<7x8xf32>
    %245 = stablehlo.add %244, %239 : tensor<7x8xf32>
    %cst_59 = stablehlo.constant dense<0.899999976> : tensor<f32>
    %246 = stablehlo.broadcast_in_dim %cst_59, dims = [] : (tensor<f32>) -> tensor<8x8xf32>
    %247 = stablehlo.multiply %246, %arg7 : tensor<8x8xf32>
    %248 = stablehlo.add %247, %187 : tensor<8x8xf32>
    %cst_60 = stablehlo.constant dense<0.899999976> : tensor<f32>
    %249 = stablehlo.broadcast_in_dim %cst_60, dims = [] : (tensor<f32>) -> tensor<8x24xf32>
    %250 = stablehlo.multiply %249, %arg8 : tensor<8x24xf32>
    %251 = stablehlo.add %250, %218 : tensor<8x24xf32>
    %cst_61 = stablehlo.constant dense<0.899999976> : tensor<f32>
    %252 = stablehlo.broadcast_in_dim %cst_61, dims = [] : (tensor<f32>) -> tensor<8x12xf32>
    %253 = stablehlo.multiply %252, %arg9 : tensor<8x12xf32>
    %254 = stablehlo.add %253, %164 : tensor<8x12xf32>
    %cst_62 = stablehlo.constant dense<1.000000e-01> : tensor<f32>
    %255 = stablehlo.broadcast_in_dim %cst_62, dims = [] : (tensor<f32>) -> tensor<12x8xf32>
    %256 = stablehlo.multiply %255, %242 : tensor<12x8xf32>
    %257 = stablehlo.subtract %arg0, %256 : tensor<12x8xf32>
    %cst_63 = stablehlo.constant dense<1.000000e-01> : tensor<f32>
    %258 = stablehlo.broadcast_in_dim %cst_63, dims = [] : (tensor<f32>) -> tensor<7x8xf32>
    %259 = stablehlo.multiply %258, %245 : tensor<7x8xf32>
    %260 = stablehlo.subtract %arg1, %259 : tensor<7x8xf32>
    %cst_64 = stablehlo.constant dense<1.000000e-01> : tensor<f32>
    %261 = stablehlo.broadcast_in_dim %cst_64, dims = [] : (tensor<f32>) -> tensor<8x8xf32>
    %262 = stablehlo.multiply %261, %248 : tensor<8x8xf32>
    %263 = stablehlo.subtract %arg2, %262 : tensor<8x8xf32>
    %cst_65 = stablehlo.constant dense<1.000000e-01> : tensor<f32>
    %264 = stablehlo.broadcast_in_dim %cst_65, dims = [] : (tensor<f32>) -> tensor<8x24xf32>
    %265 = stablehlo.multiply %264, %251 : tensor<8x24xf32>
    %266 = stablehlo.subtract %arg3, %265 : tensor<8x24xf32>
    %cst_66 = stablehlo.constant dense<1.000000e-01> : tensor<f32>
    %267 = stablehlo.broadcast_in_dim %cst_66, dims = [] : (tensor<f32>) -> tensor<8x12xf32>
    %268 = stablehlo.multiply %267, %254 : tensor<8x12xf32>
    %269 = stablehlo.subtract %arg4, %268 : tensor<8x12xf32>
    return %257, %260, %263, %266, %269, %242, %245, %248, %251, %254, %120 : tensor<12x8xf32>, tensor<7x8xf32>, tensor<8x8xf32>, tensor<8x24xf32>, tensor<8x12xf32>, tensor<12x8xf32>, tensor<7x8xf32>, tensor<8x8xf32>, tensor<8x24xf32>, tensor<8x12xf32>, tensor<f32>
  }
  func.func private @_var(%arg0: tensor<2x5x8xf32>, %arg1: tensor<i32>) -> (tensor<2x5x1xf32>, tensor<2x5x8xf32>, tensor<f32>, tensor<i1>) {
    %cst = stablehlo.constant dense<0.000000e+00> : tensor<f32>
    %0 = stablehlo.reduce(%arg0 init: %cst) applies stablehlo.add across dimensions = [2] : (tensor<2x5x8xf32>, tensor<f32>) -> tensor<2x5xf32>
    %1 = stablehlo.broadcast_in_dim %0, dims = [0, 1] : (tensor<2x5xf32>) -> tensor<2x5x1xf32>
    %cst_0 = stablehlo.constant dense<8.000000e+00> : tensor<f32>
    %2 = stablehlo.broadcast_in_dim %cst_0, dims = [] : (tensor<f32>) -> tensor<2x5x1xf32>
    %3 = stablehlo.divide %1, %2 : tensor<2x5x1xf32>
    %4 = stablehlo.broadcast_in_dim %3, dims = [0, 1, 2] : (tensor<2x5x1xf32>) -> tensor<2x5x8xf32>
    %5 = stablehlo.subtract %arg0, %4 : tensor<2x5x8xf32>
    %6 = chlo.square %5 : tensor<2x5x8xf32> -> tensor<2x5x8xf32>
    %cst_1 = stablehlo.constant dense<2.000000e+00> : tensor<f32>
    %7 = stablehlo.broadcast_in_dim %cst_1, dims = [] : (tensor<f32>) -> tensor<2x5x8xf32>
    %8 = stablehlo.multiply %7, %5 : tensor<2x5x8xf32>
    %9 = stablehlo.convert %arg1 : (tensor<i32>) -> tensor<f32>
    %cst_2 = stablehlo.constant dense<8.000000e+00> : tensor<f32>
    %10 = stablehlo.subtract %cst_2, %9 : tensor<f32>
    %cst_3 = stablehlo.constant dense<0.000000e+00> : tensor<f32>
    %11 = stablehlo.reduce(%6 init: %cst_3) applies stablehlo.add across dimensions = [2] : (tensor<2x5x8xf32>, tensor<f32>) -> tensor<2x5xf32>
    %12 = stablehlo.broadcast_in_dim %11, dims = [0, 1] : (tensor<2x5xf32>) -> tensor<2x5x1xf32>
    %13 = stablehlo.broadcast_in_dim %10, dims = [] : (tensor<f32>) -> tensor<2x5x1xf32>
    %14 = stablehlo.divide %12, %13 : tensor<2x5x1xf32>
    %cst_4 = stablehlo.constant dense<0.000000e+00> : tensor<f32>
    %15 = stablehlo.compare GT, %10, %cst_4, FLOAT : (tensor<f32>, tensor<f32>) -> tensor<i1>
    %cst_5 = stablehlo.constant dense<0x7FC00000> : tensor<f32>
    %16 = call @_where(%15, %14, %cst_5) : (tensor<i1>, tensor<2x5x1xf32>, tensor<f32>) -> tensor<2x5x1xf32>
    return %16, %8, %10, %15 : tensor<2x5x1xf32>, tensor<2x5x8xf32>, tensor<f32>, tensor<i1>
  }
  func.func private @_where(%arg0: tensor<i1>, %arg1: tensor<2x5x1xf32>, %arg2: tensor<f32>) -> tensor<2x5x1xf32> {
    %0 = stablehlo.convert %arg2 : tensor<f32>
    %1 = stablehlo.broadcast_in_dim %0, dims = [] : (tensor<f32>) -> tensor<2x5x1xf32>
    %2 = stablehlo.select %arg0, %arg1, %1 : tensor<i1>, tensor<2x5x1xf32>
    return %2 : tensor<2x5x1xf32>
  }
  func.func private @tril(%arg0: tensor<5x5xi1>) -> tensor<5x5xi1> {
    %0 = stablehlo.iota dim = 0 : tensor<5x5xi32>
    %c = stablehlo.constant dense<0> : tensor<i32>
    %1 = stablehlo.broadcast_in_dim %c, dims = [] : (tensor<i32>) -> tensor<5x5xi32>
    %2 = stablehlo.add %0, %1 : tensor<5x5xi32>
    %3 = stablehlo.iota dim = 1 : tensor<5x5xi32>
    %4 = stablehlo.compare GE, %2, %3, SIGNED : (tensor<5x5xi32>, tensor<5x5xi32>) -> tensor<5x5xi1>
    %c_0 = stablehlo.constant dense<false> : tensor<i1>
    %5 = stablehlo.broadcast_in_dim %c_0, dims = [] : (tensor<i1>) -> tensor<5x5xi1>
    %6 = stablehlo.select %4, %arg0, %5 : tensor<5x5xi1>, tensor<5x5xi1>
    return %6 : tensor<5x5xi1>
  }
  func.func private @_where_0(%arg0: tensor<5x5xi1>, %arg1: tensor<2x2x5x5xf32>, %arg2: tensor<f32>) -> (tensor<2x2x5x5xf32>, tensor<2x2x5x5xi1>) {
    %0 = stablehlo.convert %arg2 : tensor<f32>
    %1 = stablehlo.broadcast_in_dim %arg0, dims = [2, 3] : (tensor<5x5xi1>) -> tensor<2x2x5x5xi1>
    %2 = stablehlo.broadcast_in_dim %0, dims = [] : (tensor<f32>) -> tensor<2x2x5x5xf32>
    %3 = stablehlo.select %1, %arg1, %2 : tensor<2x2x5x5xi1>, tensor<2x2x5x5xf32>
    return %3, %1 : tensor<2x2x5x5xf32>, tensor<2x2x5x5xi1>
  }
  func.func private @_uniform(%arg0: tensor<2xui32>, %arg1: tensor<f32>, %arg2: tensor<f32>) -> tensor<2x5x8xf32> {
    %0 = stablehlo.convert %arg1 : tensor<f32>
    %1 = stablehlo.convert %arg2 : tensor<f32>
    %2 = stablehlo.broadcast_in_dim %0, dims = [] : (tensor<f32>) -> tensor<1x1x1xf32>
    %3 = stablehlo.broadcast_in_dim %1, dims = [] : (tensor<f32>) -> tensor<1x1x1xf32>
    %4 = stablehlo.slice %arg0 [0:1] : (tensor<2xui32>) -> tensor<1xui32>
    %5 = stablehlo.reshape %4 : (tensor<1xui32>) -> tensor<ui32>
    %6 = stablehlo.slice %arg0 [1:2] : (tensor<2xui32>) -> tensor<1xui32>
    %7 = stablehlo.reshape %6 : (tensor<1xui32>) -> tensor<ui32>
    %8 = stablehlo.iota dim = 0 : tensor<2x5x8xui64>
    %9 = stablehlo.iota dim = 1 : tensor<2x5x8xui64>
    %10 = stablehlo.iota dim = 2 : tensor<2x5x8xui64>
    %c = stablehlo.constant dense<40> : tensor<ui64>
    %11 = stablehlo.broadcast_in_dim %c, dims = [] : (tensor<ui64>) -> tensor<2x5x8xui64>
    %12 = stablehlo.multiply %11, %8 : tensor<2x5x8xui64>
    %c_0 = stablehlo.constant dense<8> : tensor<ui64>
    %13 = stablehlo.broadcast_in_dim %c_0, dims = [] : (tensor<ui64>) -> tensor<2x5x8xui64>
    %14 = stablehlo.multiply %13, %9 : tensor<2x5x8xui64>
    %c_1 = stablehlo.constant dense<1> : tensor<ui64>
    %15 = stablehlo.broadcast_in_dim %c_1, dims = [] : (tensor<ui64>) -> tensor<2x5x8xui64>
    %16 = stablehlo.multiply %15, %10 : tensor<2x5x8xui64>
    %17 = stablehlo.add %12, %14 : tensor<2x5x8xui64>
    %18 = stablehlo.add %17, %16 : tensor<2x5x8xui64>
    %c_2 = stablehlo.constant dense<32> : tensor<ui64>
    %19 = stablehlo.broadcast_in_dim %c_2, dims = [] : (tensor<ui64>) -> tensor<2x5x8xui64>
    %20 = stablehlo.shift_right_logical %18, %19 : tensor<2x5x8xui64>
    %21 = stablehlo.convert %18 : (tensor<2x5x8xui64>) -> tensor<2x5x8xui32>
    %22 = stablehlo.convert %20 : (tensor<2x5x8xui64>) -> tensor<2x5x8xui32>
    %23:2 = call @threefry2x32(%5, %7, %22, %21) : (tensor<ui32>, tensor<ui32>, tensor<2x5x8xui32>, tensor<2x5x8xui32>) -> (tensor<2x5x8xui32>, tensor<2x5x8xui32>)
    %24 = stablehlo.xor %23#0, %23#1 : tensor<2x5x8xui32>
    %c_3 = stablehlo.constant dense<9> : tensor<ui32>
    %25 = stablehlo.broadcast_in_dim %c_3, dims = [] : (tensor<ui32>) -> tensor<2x5x8xui32>
    %26 = stablehlo.shift_right_logical %24, %25 : tensor<2x5x8xui32>
    %c_4 = stablehlo.constant dense<1065353216> : tensor<ui32>
    %27 = stablehlo.broadcast_in_dim %c_4, dims = [] : (tensor<ui32>) -> tensor<2x5x8xui32>
    %28 = stablehlo.or %26, %27 : tensor<2x5x8xui32>
    %29 = stablehlo.bitcast_convert %28 : (tensor<2x5x8xui32>) -> tensor<2x5x8xf32>
    %cst = stablehlo.constant dense<1.000000e+00> : tensor<f32>
    %30 = stablehlo.broadcast_in_dim %cst, dims = [] : (tensor<f32>) -> tensor<2x5x8xf32>
    %31 = stablehlo.subtract %29, %30 : tensor<2x5x8xf32>
    %32 = stablehlo.subtract %3, %2 : tensor<1x1x1xf32>
    %33 = stablehlo.broadcast_in_dim %32, dims = [0, 1, 2] : (tensor<1x1x1xf32>) -> tensor<2x5x8xf32>
    %34 = stablehlo.multiply %31, %33 : tensor<2x5x8xf32>
    %35 = stablehlo.broadcast_in_dim %2, dims = [0, 1, 2] : (tensor<1x1x1xf32>) -> tensor<2x5x8xf32>
    %36 = stablehlo.add %34, %35 : tensor<2x5x8xf32>
    %37 = stablehlo.broadcast_in_dim %2, dims = [0, 1, 2] : (tensor<1x1x1xf32>) -> tensor<2x5x8xf32>
    %38 = stablehlo.maximum %37, %36 : tensor<2x5x8xf32>
    return %38 : tensor<2x5x8xf32>
  }
  func.func private @threefry2x32(%arg0: tensor<ui32>, %arg1: tensor<ui32>, %arg2: tensor<2x5x8xui32>, %arg3: tensor<2x5x8xui32>) -> (tensor<2x5x8xui32>, tensor<2x5x8xui32>) {
    %c = stablehlo.constant dense<[13, 15, 26, 6]> : tensor<4xui32>
    %c_0 = stablehlo.constant dense<[17, 29, 16, 24]> : tensor<4xui32>
    %0 = stablehlo.xor %arg0, %arg1 : tensor<ui32>
    %c_1 = stablehlo.constant dense<466688986> : tensor<ui32>
    %1 = stablehlo.xor %0, %c_1 : tensor<ui32>
    %2 = stablehlo.broadcast_in_dim %arg0, dims = [] : (tensor<ui32>) -> tensor<2x5x8xui32>
    %3 = stablehlo.add %arg2, %2 : tensor<2x5x8xui32>
    %4 = stablehlo.broadcast_in_dim %arg1, dims = [] : (tensor<ui32>) -> tensor<2x5x8xui32>
    %5 = stablehlo.add %arg3, %4 : tensor<2x5x8xui32>
    %c_2 = stablehlo.constant dense<0> : tensor<i32>
    %c_3 = stablehlo.constant dense<0> : tensor<i32>
    %6:9 = stablehlo.while(%iterArg = %c_3, %iterArg_4 = %c_2, %iterArg_5 = %3, %iterArg_6 = %5, %iterArg_7 = %arg1, %iterArg_8 = %1, %iterArg_9 = %arg0, %iterArg_10 = %c, %iterArg_11 = %c_0) : tensor<i32>, tensor<i32>, tensor<2x5x8xui32>, tensor<2x5x8xui32>, tensor<ui32>, tensor<ui32>, tensor<ui32>, tensor<4xui32>, tensor<4xui32>
    cond {
      %c_12 = stablehlo.constant dense<5> : tensor<i32>
      %7 = stablehlo.compare LT, %iterArg, %c_12, SIGNED : (tensor<i32>, tensor<i32>) -> tensor<i1>
      stablehlo.return %7 : tensor<i1>
    } do {
      %7:8 = func.call @closed_call(%iterArg_4, %iterArg_5, %iterArg_6, %iterArg_7, %iterArg_8, %iterArg_9, %iterArg_10, %iterArg_11) : (tensor<i32>, tensor<2x5x8xui32>, tensor<2x5x8xui32>, tensor<ui32>, tensor<ui32>, tensor<ui32>, tensor<4xui32>, tensor<4xui32>) -> (tensor<i32>, tensor<2x5x8xui32>, tensor<2x5x8xui32>, tensor<ui32>, tensor<ui32>, tensor<ui32>, tensor<4xui32>, tensor<4xui32>)
      %c_12 = stablehlo.constant dense<1> : tensor<i32>
      %8 = stablehlo.add %iterArg, %c_12 : tensor<i32>
      stablehlo.return %8, %7#0, %7#1, %7#2, %7#3, %7#4, %7#5, %7#6, %7#7 : tensor<i32>, tensor<i32>, tensor<2x5x8xui32>, tensor<2x5x8xui32>, tensor<ui32>, tensor<ui32>, tensor<ui32>, tensor<4xui32>, tensor<4xui32>
    }
    return %6#2, %6#3 : tensor<2x5x8xui32>, tensor<2x5x8xui32>
  }
  func.func private @closed_call(%arg0: tensor<i32>, %arg1: tensor<2x5x8xui32>, %arg2: tensor<2x5x8xui32>, %arg3: tensor<ui32>, %arg4: tensor<ui32>, %arg5: tensor<ui32>, %arg6: tensor<4xui32>, %arg7: tensor<4xui32>) -> (tensor<i32>, tensor<2x5x8xui32>, tensor<2x5x8xui32>, tensor<ui32>, tensor<ui32>, tensor<ui32>, tensor<4xui32>, tensor<4xui32>) {
    %c = stablehlo.constant dense<1> : tensor<i32>
    %0 = stablehlo.add %arg0, %c : tensor<i32>
    %1 = stablehlo.slice %arg6 [0:1] : (tensor<4xui32>) -> tensor<1xui32>
    %2 = stablehlo.reshape %1 : (tensor<1xui32>) -> tensor<ui32>
    %3 = stablehlo.add %arg1, %arg2 : tensor<2x5x8xui32>
    %4 = stablehlo.broadcast_in_dim %2, dims = [] : (tensor<ui32>) -> tensor<2x5x8xui32>
    %5 = stablehlo.shift_left %arg2, %4 : tensor<2x5x8xui32>
    %c_0 = stablehlo.constant dense<32> : tensor<ui32>
    %6 = stablehlo.subtract %c_0, %2 : tensor<ui32>
    %7 = stablehlo.broadcast_in_dim %6, dims = [] : (tensor<ui32>) -> tensor<2x5x8xui32>
    %8 = stablehlo.shift_right_logical %arg2, %7 : tensor<2x5x8xui32>
    %9 = stablehlo.or %5, %8 : tensor<2x5x8xui32>
    %10 = stablehlo.xor %3, %9 : tensor<2x5x8xui32>
    %11 = stablehlo.slice %arg6 [1:2] : (tensor<4xui32>) -> tensor<1xui32>
    %12 = stablehlo.reshape %11 : (tensor<1xui32>) -> tensor<ui32>
    %13 = stablehlo.add %3, %10 : tensor<2x5x8xui32>
    %14 = stablehlo.broadcast_in_dim %12, dims = [] : (tensor<ui32>) -> tensor<2x5x8xui32>
    %15 = stablehlo.shift_left %10, %14 : tensor<2x5x8xui32>
    %c_1 = stablehlo.constant dense<32> : tensor<ui32>
    %16 = stablehlo.subtract %c_1, %12 : tensor<ui32>
    %17 = stablehlo.broadcast_in_dim %16, dims = [] : (tensor<ui32>) -> tensor<2x5x8xui32>
    %18 = stablehlo.shift_right_logical %10, %17 : tensor<2x5x8xui32>
    %19 = stablehlo.or %15, %18 : tensor<2x5x8xui32>
    %20 = stablehlo.xor %13, %19 : tensor<2x5x8xui32>
    %21 = stablehlo.slice %arg6 [2:3] : (tensor<4xui32>) -> tensor<1xui32>
    %22 = stablehlo.reshape %21 : (tensor<1xui32>) -> tensor<ui32>
    %23 = stablehlo.add %13, %20 : tensor<2x5x8xui32>
    %24 = stablehlo.broadcast_in_dim %22, dims = [] : (tensor<ui32>) -> tensor<2x5x8xui32>
    %25 = stablehlo.shift_left %20, %24 : tensor<2x5x8xui32>
    %c_2 = stablehlo.constant dense<32> : tensor<ui32>
    %26 = stablehlo.subtract %c_2, %22 : tensor<ui32>
    %27 = stablehlo.broadcast_in_dim %26, dims = [] : (tensor<ui32>) -> tensor<2x5x8xui32>
    %28 = stablehlo.shift_right_logical %20, %27 : tensor<2x5x8xui32>
    %29 = stablehlo.or %25, %28 : tensor<2x5x8xui32>
    %30 = stablehlo.xor %23, %29 : tensor<2x5x8xui32>
    %31 = stablehlo.slice %arg6 [3:4] : (tensor<4xui32>) -> tensor<1xui32>
    %32 = stablehlo.reshape %31 : (tensor<1xui32>) -> tensor<ui32>
    %33 = stablehlo.add %23, %30 : tensor<2x5x8xui32>
    %34 = stablehlo.broadcast_in_dim %32, dims = [] : (tensor<ui32>) -> tensor<2x5x8xui32>
    %35 = stablehlo.shift_left %30, %34 : tensor<2x5x8xui32>
    %c_3 = stablehlo.constant dense<32> : tensor<ui32>
    %36 = stablehlo.subtract %c_3, %32 : tensor<ui32>
    %37 = stablehlo.broadcast_in_dim %36, dims = [] : (tensor<ui32>) -> tensor<2x5x8xui32>
    %38 = stablehlo.shift_right_logical %30, %37 : tensor<2x5x8xui32>
    %39 = stablehlo.or %35, %38 : tensor<2x5x8xui32>
    %40 = stablehlo.xor %33, %39 : tensor<2x5x8xui32>
    %41 = stablehlo.broadcast_in_dim %arg3, dims = [] : (tensor<ui32>) -> tensor<2x5x8xui32>
    %42 = stablehlo.add %33, %41 : tensor<2x5x8xui32>
    %43 = stablehlo.broadcast_in_dim %arg4, dims = [] : (tensor<ui32>) -> tensor<2x5x8xui32>
    %44 = stablehlo.add %40, %43 : tensor<2x5x8xui32>
    %c_4 = stablehlo.constant dense<1> : tensor<i32>
    %45 = stablehlo.add %arg0, %c_4 : tensor<i32>
    %46 = stablehlo.convert %45 : (tensor<i32>) -> tensor<ui32>
    %47 = stablehlo.broadcast_in_dim %46, dims = [] : (tensor<ui32>) -> tensor<2x5x8xui32>
    %48 = stablehlo.add %44, %47 : tensor<2x5x8xui32>
    return %0, %42, %48, %arg4, %arg5, %arg3, %arg7, %arg6 : tensor<i32>, tensor<2x5x8xui32>, tensor<2x5x8xui32>, tensor<ui32>, tensor<ui32>, tensor<ui32>, tensor<4xui32>, tensor<4xui32>
  }
  func.func private @_where_1(%arg0: tensor<2x5x8xi1>, %arg1: tensor<2x5x8xf32>, %arg2: tensor<i32>) -> tensor<2x5x8xf32> {
    %0 = stablehlo.convert %arg2 : (tensor<i32>) -> tensor<f32>
    %1 = stablehlo.broadcast_in_dim %0, dims = [] : (tensor<f32>) -> tensor<2x5x8xf32>
    %2 = stablehlo.select %arg0, %arg1, %1 : tensor<2x5x8xi1>, tensor<2x5x8xf32>
    return %2 : tensor<2x5x8xf32>
  }
  func.func private @log_softmax(%arg0: tensor<2x5x7xf32>) -> (tensor<2x5x7xf32>, tensor<2x5x7xf32>, tensor<2x5x1xf32>) {
    %cst = stablehlo.constant dense<0xFF800000> : tensor<f32>
    %0 = stablehlo.reduce(%arg0 init: %cst) applies stablehlo.maximum across dimensions = [2] : (tensor<2x5x7xf32>, tensor<f32>) -> tensor<2x5xf32>
    %cst_0 = stablehlo.constant dense<0xFF800000> : tensor<f32>
    %1 = stablehlo.broadcast_in_dim %cst_0, dims = [] : (tensor<f32>) -> tensor<2x5xf32>
    %2 = stablehlo.maximum %1, %0 : tensor<2x5xf32>
    %3 = stablehlo.broadcast_in_dim %2, dims = [0, 1] : (tensor<2x5xf32>) -> tensor<2x5x1xf32>
    %4 = stablehlo.broadcast_in_dim %3, dims = [0, 1, 2] : (tensor<2x5x1xf32>) -> tensor<2x5x7xf32>
    %5 = stablehlo.subtract %arg0, %4 : tensor<2x5x7xf32>
    %6 = stablehlo.exponential %5 : tensor<2x5x7xf32>
    %cst_1 = stablehlo.constant dense<0.000000e+00> : tensor<f32>
    %7 = stablehlo.reduce(%6 init: %cst_1) applies stablehlo.add across dimensions = [2] : (tensor<2x5x7xf32>, tensor<f32>) -> tensor<2x5xf32>
    %8 = stablehlo.broadcast_in_dim %7, dims = [0, 1] : (tensor<2x5xf32>) -> tensor<2x5x1xf32>
    %9 = stablehlo.log %8 : tensor<2x5x1xf32>
    %10 = stablehlo.broadcast_in_dim %9, dims = [0, 1, 2] : (tensor<2x5x1xf32>) -> tensor<2x5x7xf32>
    %11 = stablehlo.subtract %5, %10 : tensor<2x5x7xf32>
    return %11, %6, %8 : tensor<2x5x7xf32>, tensor<2x5x7xf32>, tensor<2x5x1xf32>
  }
  func.func private @take_along_axis(%arg0: tensor<2x5x7xf32>, %arg1: tensor<2x5x1xi32>) -> (tensor<2x5x1xf32>, tensor<2x5x1x1xi32>) {
    %c = stablehlo.constant dense<0> : tensor<i32>
    %0 = stablehlo.broadcast_in_dim %c, dims = [] : (tensor<i32>) -> tensor<2x5x1xi32>
    %1 = stablehlo.compare LT, %arg1, %0, SIGNED : (tensor<2x5x1xi32>, tensor<2x5x1xi32>) -> tensor<2x5x1xi1>
    %c_0 = stablehlo.constant dense<7> : tensor<i32>
    %2 = stablehlo.broadcast_in_dim %c_0, dims = [] : (tensor<i32>) -> tensor<2x5x1xi32>
    %3 = stablehlo.add %arg1, %2 : tensor<2x5x1xi32>
    %4 = stablehlo.select %1, %3, %arg1 : tensor<2x5x1xi1>, tensor<2x5x1xi32>
    %5 = stablehlo.reshape %4 : (tensor<2x5x1xi32>) -> tensor<2x5x1x1xi32>
    %c_1 = stablehlo.constant dense<6> : tensor<1xi32>
    %c_2 = stablehlo.constant dense<0> : tensor<i32>
    %6 = stablehlo.broadcast_in_dim %c_2, dims = [] : (tensor<i32>) -> tensor<2x5x1x1xi32>
    %7 = stablehlo.compare GE, %5, %6, SIGNED : (tensor<2x5x1x1xi32>, tensor<2x5x1x1xi32>) -> tensor<2x5x1x1xi1>
    %8 = stablehlo.broadcast_in_dim %c_1, dims = [3] : (tensor<1xi32>) -> tensor<1x1x1x1xi32>
    %9 = stablehlo.broadcast_in_dim %8, dims = [0, 1, 2, 3] : (tensor<1x1x1x1xi32>) -> tensor<2x5x1x1xi32>
    %10 = stablehlo.compare LE, %5, %9, SIGNED : (tensor<2x5x1x1xi32>, tensor<2x5x1x1xi32>) -> tensor<2x5x1x1xi1>
    %11 = stablehlo.and %7, %10 : tensor<2x5x1x1xi1>
    %c_3 = stablehlo.constant dense<true> : tensor<i1>
    %12 = stablehlo.reduce(%11 init: %c_3) applies stablehlo.and across dimensions = [3] : (tensor<2x5x1x1xi1>, tensor<i1>) -> tensor<2x5x1xi1>
    %13 = "stablehlo.gather"(%arg0, %5) <{dimension_numbers = #stablehlo.gather<collapsed_slice_dims = [2], operand_batching_dims = [0, 1], start_indices_batching_dims = [0, 1], start_index_map = [2], index_vector_dim = 3>, indices_are_sorted = false, slice_sizes = array<i64: 1, 1, 1>}> : (tensor<2x5x7xf32>, tensor<2x5x1x1xi32>) -> tensor<2x5x1xf32>
    %cst = stablehlo.constant dense<0x7FC00000> : tensor<f32>
    %14 = stablehlo.broadcast_in_dim %cst, dims = [] : (tensor<f32>) -> tensor<2x5x1xf32>
    %15 = stablehlo.select %12, %13, %14 : tensor<2x5x1xi1>, tensor<2x5x1xf32>
    return %15, %5 : tensor<2x5x1xf32>, tensor<2x5x1x1xi32>
  }
  func.func private @take_along_axis_2(%arg0: tensor<2x5x1x1xi32>, %arg1: tensor<2x5x1xf32>) -> tensor<2x5x7xf32> {
    %cst = stablehlo.constant dense<0.000000e+00> : tensor<f32>
    %0 = stablehlo.broadcast_in_dim %cst, dims = [] : (tensor<f32>) -> tensor<2x5x7xf32>
    %1 = "stablehlo.scatter"(%0, %arg0, %arg1) <{indices_are_sorted = false, scatter_dimension_numbers = #stablehlo.scatter<inserted_window_dims = [2], input_batching_dims = [0, 1], scatter_indices_batching_dims = [0, 1], scatter_dims_to_operand_dims = [2], index_vector_dim = 3>, unique_indices = false}> ({
    ^bb0(%arg2: tensor<f32>, %arg3: tensor<f32>):
      %2 = stablehlo.add %arg2, %arg3 : tensor<f32>
      stablehlo.return %2 : tensor<f32>
    }) : (tensor<2x5x7xf32>, tensor<2x5x1x1xi32>, tensor<2x5x1xf32>) -> tensor<2x5x7xf32>
    return %1 : tensor<2x5x7xf32>
  }
  func.func private @log_softmax_3(%arg0: tensor<2x5x7xf32>, %arg1: tensor<2x5x1xf32>, %arg2: tensor<2x5x7xf32>) -> tensor<2x5x7xf32> {
    %0 = stablehlo.negate %arg2 : tensor<2x5x7xf32>
    %cst = stablehlo.constant dense<0.000000e+00> : tensor<f32>
    %1 = stablehlo.reduce(%0 init: %cst) applies stablehlo.add across dimensions = [2] : (tensor<2x5x7xf32>, tensor<f32>) -> tensor<2x5xf32>
    %2 = stablehlo.reshape %1 : (tensor<2x5xf32>) -> tensor<2x5x1xf32>
    %3 = stablehlo.divide %2, %arg1 : tensor<2x5x1xf32>
    %cst_0 = stablehlo.constant dense<0.000000e+00> : tensor<f32>
    %4 = stablehlo.reduce(%3 init: %cst_0) applies stablehlo.add across dimensions = [2] : (tensor<2x5x1xf32>, tensor<f32>) -> tensor<2x5xf32>
    %5 = stablehlo.broadcast_in_dim %4, dims = [0, 1] : (tensor<2x5xf32>) -> tensor<2x5x7xf32>
    %6 = stablehlo.multiply %5, %arg0 : tensor<2x5x7xf32>
    %7 = stablehlo.add %arg2, %6 : tensor<2x5x7xf32>
    return %7 : tensor<2x5x7xf32>
  }
  func.func private @_var_4(%arg0: tensor<2x5x8xf32>, %arg1: tensor<f32>, %arg2: tensor<i1>, %arg3: tensor<2x5x1xf32>) -> tensor<2x5x8xf32> {
    %0 = call @_where_5(%arg2, %arg3) : (tensor<i1>, tensor<2x5x1xf32>) -> tensor<2x5x1xf32>
    %1 = stablehlo.broadcast_in_dim %arg1, dims = [] : (tensor<f32>) -> tensor<2x5x1xf32>
    %2 = stablehlo.divide %0, %1 : tensor<2x5x1xf32>
    %cst = stablehlo.constant dense<0.000000e+00> : tensor<f32>
    %3 = stablehlo.reduce(%2 init: %cst) applies stablehlo.add across dimensions = [2] : (tensor<2x5x1xf32>, tensor<f32>) -> tensor<2x5xf32>
    %4 = stablehlo.broadcast_in_dim %3, dims = [0, 1] : (tensor<2x5xf32>) -> tensor<2x5x8xf32>
    %5 = stablehlo.multiply %4, %arg0 : tensor<2x5x8xf32>
    %6 = stablehlo.negate %5 : tensor<2x5x8xf32>
    %cst_0 = stablehlo.constant dense<0.000000e+00> : tensor<f32>
    %7 = stablehlo.reduce(%6 init: %cst_0) applies stablehlo.add across dimensions = [2] : (tensor<2x5x8xf32>, tensor<f32>) -> tensor<2x5xf32>
    %8 = stablehlo.reshape %7 : (tensor<2x5xf32>) -> tensor<2x5x1xf32>
    %cst_1 = stablehlo.constant dense<8.000000e+00> : tensor<f32>
    %9 = stablehlo.broadcast_in_dim %cst_1, dims = [] : (tensor<f32>) -> tensor<2x5x1xf32>
    %10 = stablehlo.divide %8, %9 : tensor<2x5x1xf32>
    %cst_2 = stablehlo.constant dense<0.000000e+00> : tensor<f32>
    %11 = stablehlo.reduce(%10 init: %cst_2) applies stablehlo.add across dimensions = [2] : (tensor<2x5x1xf32>, tensor<f32>) -> tensor<2x5xf32>
    %12 = stablehlo.broadcast_in_dim %11, dims = [0, 1] : (tensor<2x5xf32>) -> tensor<2x5x8xf32>
    %13 = stablehlo.add %5, %12 : tensor<2x5x8xf32>
    return %13 : tensor<2x5x8xf32>
  }
  func.func private @_where_5(%arg0: tensor<i1>, %arg1: tensor<2x5x1xf32>) -> tensor<2x5x1xf32> {
    %cst = stablehlo.constant dense<0.000000e+00> : tensor<f32>
    %0 = stablehlo.broadcast_in_dim %cst, dims = [] : (tensor<f32>) -> tensor<2x5x1xf32>
    %1 = stablehlo.select %arg0, %arg1, %0 : tensor<i1>, tensor<2x5x1xf32>
    return %1 : tensor<2x5x1xf32>
  }
  func.func private @_where_6(%arg0: tensor<2x5x8xi1>, %arg1: tensor<2x5x8xf32>) -> tensor<2x5x8xf32> {
    %cst = stablehlo.constant dense<0.000000e+00> : tensor<f32>
    %0 = stablehlo.broadcast_in_dim %cst, dims = [] : (tensor<f32>) -> tensor<2x5x8xf32>
    %1 = stablehlo.select %arg0, %arg1, %0 : tensor<2x5x8xi1>, tensor<2x5x8xf32>
    return %1 : tensor<2x5x8xf32>
  }
  func.func private @_where_7(%arg0: tensor<2x2x5x5xi1>, %arg1: tensor<2x2x5x5xf32>) -> tensor<2x2x5x5xf32> {
    %cst = stablehlo.constant dense<0.000000e+00> : tensor<f32>
    %0 = stablehlo.broadcast_in_dim %cst, dims = [] : (tensor<f32>) -> tensor<2x2x5x5xf32>
    %1 = stablehlo.select %arg0, %arg1, %0 : tensor<2x2x5x5xi1>, tensor<2x2x5x5xf32>
    return %1 : tensor<2x2x5x5xf32>
  }
}
